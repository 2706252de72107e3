package upstream

import (
	"context"
	"net/http"

	"github.com/listproxy/listproxy/proxy/authn"
)

type onAcceptanceKey struct{}

// WithAcceptance returns r with a func to call when the API server's answer to r shows that it has
// accepted the caller. It is called in the goroutine of the request's handler.
func WithAcceptance(r *http.Request, do func()) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), onAcceptanceKey{}, do))
}

// NoteAcceptance calls the func of [WithAcceptance] if the answer shows that the caller was accepted.
// A caller without a token in Authorization is not known, unless the API server switches protocols: it
// does so for execs, watches and the like, which anonymous callers may not send by default. Then the
// token was in a WebSocket header.
func NoteAcceptance(r *http.Request, caller authn.Identity, status int) {
	accepted := status == http.StatusSwitchingProtocols || caller.BringsToken() && provesAuthentication(r.Method, status)
	if do, ok := r.Context().Value(onAcceptanceKey{}).(func()); ok && accepted {
		do()
	}
}
