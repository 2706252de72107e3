package cluster

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// followRBAC calls [Config.Revoked] when RBAC may have taken a right away: a rule of a role or a subject of a binding was
// removed. Additions and changes of metadata take no right away, since RBAC never denies
// (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac). followRBAC runs until ctx ends.
//
// followRBAC only makes revocations take effect sooner. It does not see a revocation while a watch of RBAC objects is broken or
// not permitted, or if another authorizer than RBAC decides. Such a revocation takes effect when the remembered decisions
// expire.
//
// If listproxy may not watch RBAC objects, followRBAC logs that once, and tries again every few minutes.
func (c *Cluster) followRBAC(ctx context.Context) {
	var streams sync.WaitGroup
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		r := &reflector[grants]{
			resource: resource,
			from:     c.api,
			path:     "/apis/rbac.authorization.k8s.io/v1/" + resource,
			read:     readGrants,
			onChange: func(change valueChange[grants]) {
				if removesGrant(change) {
					namespace, _, _ := cache.SplitMetaNamespaceKey(change.name) // "" for an object of the cluster
					c.config.Revoked(namespace)
				}
			},
			log: c.config.Log,
		}
		if resource == "clusterroles" { // only this reflector warns, for all four
			r.refusedWarning = "RBAC objects may not be watched: decisions live for their whole TTL, also after a revocation"
			r.needs = "list and watch on all resources of rbac.authorization.k8s.io"
		}
		streams.Go(func() { r.run(ctx) })
	}
	streams.Wait()
}

// grants are the grants of a role or binding, each as a hash. A grant is a rule of a role, or a subject of a binding together
// with the binding's role.
type grants []uint64

// removesGrant reports whether a change of an object removes a grant, and with it perhaps a right.
func removesGrant(change valueChange[grants]) bool {
	isRemoved := func(grant uint64) bool { return change.after == nil || !slices.Contains(*change.after, grant) }
	return change.before != nil && slices.ContainsFunc(*change.before, isRemoved)
}

var grantSeed = maphash.MakeSeed()

// readGrants returns the grants of a role or binding. A role has only Rules, and a binding only a RoleRef and Subjects.
func readGrants(o *object) (all grants) {
	for _, grant := range slices.Concat(o.Rules, o.Subjects) {
		all = append(all, maphash.Bytes(grantSeed, slices.Concat(o.RoleRef, grant)))
	}
	return all
}
