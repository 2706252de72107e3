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

// WatchRBAC calls revoked whenever RBAC may have taken a right away: when a rule of a role, or a subject of a binding,
// has gone. Additions and metadata take no right away, since RBAC never denies
// (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac). namespace is that of a Role or RoleBinding, which grants nothing
// beyond it, and "" for a ClusterRole or ClusterRoleBinding. revoked is called from several goroutines. WatchRBAC runs
// until ctx ends; an error is about cfg.
//
// It only makes revocations take effect sooner. The TTL of the decisions bounds the delay if it misses one: while it is
// cut off, if it is not permitted, or if other authorizers than RBAC decide. So if listproxy may not watch these
// objects, it logs that once, and tries again every few minutes.
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
				hasGone := func(grant uint64) bool { return c.after == nil || !slices.Contains(*c.after, grant) }
				if c.before != nil && slices.ContainsFunc(*c.before, hasGone) {
					revoked(c.name[:max(0, strings.IndexByte(c.name, '/'))])
				}
			},
			log: log,
		}
		if resource == "clusterroles" { // one warning is enough for all four
			r.refusal = "RBAC objects may not be watched: decisions live for their whole TTL, also after a revocation"
			r.grant = "list and watch on all resources of rbac.authorization.k8s.io"
		}
		streams.Go(func() { r.run(ctx) })
	}
	streams.Wait()
	return nil
}

// grants has a hash of each rule of a role, or of each subject of a binding with the binding's role.
type grants []uint64

var grantSeed = maphash.MakeSeed()

// readGrants reads a role or a binding.
func readGrants(o *object) (all grants) {
	for _, grant := range slices.Concat(o.Rules, o.Subjects) {
		all = append(all, maphash.Bytes(grantSeed, slices.Concat(o.RoleRef, grant)))
	}
	return all
}
