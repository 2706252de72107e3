package authz

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
)

// Recognise is User for those who can do without: where the upstream does not say who the caller
// is, it says so too, and for the TTL the upstream is not asked again. So there is at most one
// question for a caller and TTL, whatever becomes of it. Whom listproxy has verified itself it
// knows without asking.
func (w *WhoAmI) Recognise(ctx context.Context, id authn.Identity, share inflight.ShareKey) (user.Info, error) {
	if u := id.Impersonated(); u != nil {
		return u, nil
	}
	who := id.Key()
	key := string(who[:])
	if why, failed := w.failures.get(key, time.Now()); failed {
		return nil, why
	}
	asked := time.Now()
	u, err := w.User(ctx, id, share)
	if err != nil {
		if ctx.Err() == nil && w.ttl > 0 {
			w.failures.add(key, err, 1, validity{asked, w.ttl}, time.Now())
		}
		return nil, err
	}
	return u, nil
}
