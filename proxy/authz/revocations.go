package authz

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// scope has the namespaces whose Roles and RoleBindings decide about a right, besides ClusterRoles and their
// bindings: the one that the question is about, and that of a service account that is impersonated.
type scope struct{ asked, impersonated string }

func scopeOf(id authn.Identity, a Attributes) scope {
	of := scope{asked: a.Namespace}
	if user := id.Impersonated(); user != nil {
		of.impersonated, _, _ = serviceaccount.SplitUsername(user.Name) // "" if it is another user
	}
	return of
}

// revocations knows when rights were last taken away in each namespace; "" stands for all.
type revocations struct {
	mu   sync.RWMutex
	last map[string]time.Time
}

// note notes that rights are taken away now, and forgets what is longer ago than kept.
func (r *revocations) note(namespace string, now time.Time, kept time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ string, at time.Time) bool { return clock.Age(at, now) > kept })
	if r.last == nil {
		r.last = map[string]time.Time{}
	}
	r.last[namespace] = now
}

// since reports whether rights in a scope were taken away at a time or later.
func (r *revocations) since(at time.Time, in scope) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, namespace := range []string{"", in.asked, in.impersonated} {
		if last, ok := r.last[namespace]; ok && !last.Before(at) {
			return true
		}
	}
	return false
}
