package upstream

import (
	"net/http"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
)

// Caller says whether the caller is known, and whose share its requests use. A caller is known if
// listproxy impersonates it, or if the API server has accepted it not long ago. Unknown callers
// with the same address have one share.
func (t *Transports) Caller(id authn.Identity, remoteAddr string) (share inflight.ShareKey, accepted bool) {
	if share, accepted = t.acceptedShare(id); accepted {
		return share, true
	}
	accepted = id.Impersonated() != nil
	return authn.ShareKey(id, accepted, remoteAddr), accepted
}

// acceptedShare returns the share of a caller whose token the API server has accepted not long ago.
func (t *Transports) acceptedShare(id authn.Identity) (share inflight.ShareKey, accepted bool) {
	if !id.BringsToken() {
		return share, false
	}
	return t.accepted.get(id.Key())
}

// accepts says whether the API server has accepted the caller's token not long ago.
func (t *Transports) accepts(id authn.Identity) bool {
	_, accepted := t.acceptedShare(id)
	return accepted
}

// Answered records the status with which the API server answered a request of the caller. It says
// whether the answer shows that the API server has accepted the caller, and remembers or forgets
// the caller's token accordingly.
//
// After a request for an upgrade nothing is remembered: its token may be in a WebSocket header, and
// then the answer says nothing about the token in Authorization. But if the API server switches
// protocols (101), the caller counts as accepted for this request: kube-apiserver switches for
// execs, watches and the like, which anonymous callers may not send by default.
func (t *Transports) Answered(id authn.Identity, upgrade bool, method string, status int) (accepted bool) {
	accepted = id.BringsToken() && provesAuthentication(method, status)
	switch {
	case upgrade:
		return accepted || status == http.StatusSwitchingProtocols
	case accepted:
		t.accept(id)
		t.pending.leave(id.Key(), nil)
	case status == http.StatusUnauthorized:
		t.accepted.remove(id.Key())
		t.pending.leave(id.Key(), nil)
	}
	return accepted
}

// accept remembers that the API server has accepted the token of id.
func (t *Transports) accept(id authn.Identity) {
	t.accepted.add(id.Key(), func() inflight.ShareKey { return authn.ShareKey(id, true, "") })
}

// provesAuthentication says whether kube-apiserver gives such an answer only to callers whom it has
// authenticated. It gives some answers before it checks a token (DefaultBuildHandlerChain in
// k8s.io/apiserver/pkg/server): 400 to a malformed timeout, an answer to the preflights of CORS,
// 429 and 5xx when it is overloaded or shuts down. Callers with made-up tokens get these too.
func provesAuthentication(method string, status int) bool {
	if method == http.MethodOptions {
		return false
	}
	return status >= http.StatusOK && status < http.StatusMultipleChoices || status == http.StatusForbidden
}
