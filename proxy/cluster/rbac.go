package cluster

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// WatchRBAC calls revoked whenever RBAC may have taken a right away: when a rule of a role, or a subject of a
// binding, is no longer there. What is only added can take nothing away, since RBAC never denies
// (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac), nor can metadata. namespace is that of a Role or
// RoleBinding, which grants nothing beyond it. It is "" for ClusterRoles and ClusterRoleBindings.
// WatchRBAC runs until ctx ends; the error is about cfg.
//
// It only makes revocations take effect sooner. If it misses one (while it is cut off, if it is not
// permitted, or if other authorizers than RBAC decide), the TTL of the decisions bounds the delay.
// So if listproxy may not watch these objects, it logs that once, and tries again every few
// minutes.
//
// revoked is called from several goroutines.
func WatchRBAC(ctx context.Context, cfg *rest.Config, revoked func(namespace string), log *slog.Logger) error {
	from, err := newAPI(cfg)
	if err != nil {
		return fmt.Errorf("cannot watch RBAC objects: %w", err)
	}
	var streams sync.WaitGroup
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		r := &reflector[grants]{
			resource: resource,
			from:     from, path: "/apis/rbac.authorization.k8s.io/v1/" + resource,
			read: readGrants,
			changed: func(c change[grants]) {
				isGone := func(one uint64) bool { return c.is == nil || !slices.Contains(*c.is, one) }
				if c.was != nil && slices.ContainsFunc(*c.was, isGone) {
					revoked(c.name[:max(0, strings.IndexByte(c.name, '/'))])
				}
			},
			log: log,
		}
		if resource == "clusterroles" { // whoever may not watch these may not watch the others
			r.refusal = "RBAC objects may not be watched: decisions live for their whole TTL, also after a revocation"
			r.grant = "list and watch on all resources of rbac.authorization.k8s.io"
		}
		streams.Go(func() { r.run(ctx) })
	}
	streams.Wait()
	return nil
}

// grants are the rules of a role, or the subjects of a binding, each with the role that it is bound to. They
// are kept as hashes: clusters have many.
type grants []uint64

var grantSeed = maphash.MakeSeed()

func readGrants(o *object) (g grants) {
	for _, one := range slices.Concat(o.Rules, o.Subjects) {
		g = append(g, maphash.Bytes(grantSeed, slices.Concat(o.RoleRef, one)))
	}
	return g
}
