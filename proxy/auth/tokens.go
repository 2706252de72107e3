package auth

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/listproxy/listproxy/proxy/limits"
)

const (
	// acceptedTokens is how many accepted tokens are remembered: those that were used last. A token
	// that was forgotten is reviewed as a new one.
	acceptedTokens = 64 << 10
	acceptedFor    = time.Hour
	// refusedTokens is how many refused tokens are remembered, so that made-up tokens do not push out
	// accepted ones.
	refusedTokens = 4 << 10
	refusedFor    = 10 * time.Second
)

// Verdict is what the API server said last of a caller's credentials.
type Verdict int

const (
	// Unasked means that the API server has not been asked yet, or not for long.
	Unasked Verdict = iota
	// Accepted means that it has accepted the token, or listproxy has verified the caller itself.
	Accepted
	// Refused means that it has answered 401 to the token within the last ten seconds.
	Refused
	// Anonymous means that the caller brings no token, so there is nothing to ask about.
	Anonymous
)

// Tokens remembers what the API server has said of tokens, by their keys, in bounded memory. It is
// safe for concurrent use.
type Tokens struct {
	accepted *cache.LRUExpireCache // of limits.Flow
	refused  *cache.LRUExpireCache
}

// NewTokens returns Tokens that remember nothing yet.
func NewTokens() *Tokens {
	return &Tokens{accepted: cache.NewLRUExpireCache(acceptedTokens), refused: cache.NewLRUExpireCache(refusedTokens)}
}

// Caller returns what the API server has said of the caller's credentials, and to which flow its
// requests belong: its own if it is accepted, else that of its address. The handler keeps both for a
// request; what sends the request asks again, and the caller may be accepted by then.
func (t *Tokens) Caller(id Identity, remoteAddr string) (Verdict, limits.Flow) {
	switch {
	case id.Impersonated() != nil:
		return Accepted, FlowOf(id, true, remoteAddr)
	case !id.BringsToken():
		return Anonymous, FlowOf(id, false, remoteAddr)
	}
	if flow, ok := t.accepted.Get(id.credentials); ok {
		flow, _ := flow.(limits.Flow)
		return Accepted, flow
	}
	if _, ok := t.refused.Get(id.credentials); ok {
		return Refused, FlowOf(id, false, remoteAddr)
	}
	return Unasked, FlowOf(id, false, remoteAddr)
}

// accepts reports whether the API server has accepted the caller's token not long ago.
func (t *Tokens) accepts(id Identity) bool {
	_, ok := t.accepted.Get(id.credentials)
	return ok && id.BringsToken()
}

// Answered remembers what the status of the API server's answer to a request says of the caller's
// token. The answer to a request for an upgrade says nothing: its token may be in a WebSocket header.
func (t *Tokens) Answered(id Identity, upgrade bool, method string, status int) {
	switch {
	case upgrade || !id.BringsToken():
	case status == http.StatusUnauthorized:
		t.accepted.Remove(id.credentials)
		t.refused.Add(id.credentials, nil, refusedFor)
	case provesAuthentication(method, status) && !t.accepts(id):
		t.refused.Remove(id.credentials)
		t.accepted.Add(id.credentials, FlowOf(id, true, ""), acceptedFor)
	}
}

// provesAuthentication reports whether kube-apiserver gives such an answer only to callers whom it has
// authenticated. It gives some answers before it checks a token (DefaultBuildHandlerChain in
// k8s.io/apiserver/pkg/server): 400 to a malformed timeout, an answer to the preflights of CORS,
// 429 and 5xx when it is overloaded or shuts down. Callers with made-up tokens get these too.
func provesAuthentication(method string, status int) bool {
	if method == http.MethodOptions {
		return false
	}
	return status >= http.StatusOK && status < http.StatusMultipleChoices || status == http.StatusForbidden
}
