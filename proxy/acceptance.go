package proxy

import (
	"context"
	"net/http"
)

type onAcceptanceKey struct{}

// withAcceptance returns r with what is to be done when the upstream's answer to it shows that it has accepted
// the caller. It is done once at most, in the goroutine of the request's handler.
func withAcceptance(r *http.Request, do func()) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), onAcceptanceKey{}, do))
}

// noteAcceptance does that, if the answer shows it. Without a token nobody is known, but for whoever gets to
// switch protocols: nobody gets that who is nobody, so there was a token, in a header of WebSocket's.
func noteAcceptance(r *http.Request, caller Identity, status int) {
	accepted := status == http.StatusSwitchingProtocols || caller.bringsToken() && provesAuthentication(r.Method, status)
	if do, ok := r.Context().Value(onAcceptanceKey{}).(func()); ok && accepted {
		do()
	}
}
