package proxy

import (
	"context"
	"net/http"

	"github.com/listproxy/listproxy/proxy/authn"
)

type onAcceptanceKey struct{}

// withAcceptance returns r with what is to be done when the upstream's answer to it shows that it has accepted
// the caller. It is done once at most, in the goroutine of the request's handler.
func withAcceptance(r *http.Request, do func()) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), onAcceptanceKey{}, do))
}

// noteAcceptance does that, if the answer shows it. Without a token in Authorization nobody is known, but for
// callers who get to switch protocols: kube-apiserver does that for execs, watches and the like, which anonymous callers
// may not send unless somebody grants it. So the token was in a WebSocket header.
func noteAcceptance(r *http.Request, caller authn.Identity, status int) {
	accepted := status == http.StatusSwitchingProtocols || caller.BringsToken() && provesAuthentication(r.Method, status)
	if do, ok := r.Context().Value(onAcceptanceKey{}).(func()); ok && accepted {
		do()
	}
}
