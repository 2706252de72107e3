package auth

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/listproxy/listproxy/proxy/limits"
)

const (
	// acceptedTokens is the number of accepted tokens that are remembered: those that were used last. A forgotten one
	// is reviewed like a new one.
	acceptedTokens = 64 << 10
	acceptedFor    = time.Hour
	// refusedTokens is the number of refused tokens that are remembered. Made-up tokens do not push out accepted ones.
	refusedTokens = 4 << 10
	refusedFor    = 10 * time.Second
)

// Verdict is the API server's last judgement of a caller's credentials.
type Verdict int

const (
	// Unasked means that the API server has not judged the token, or not within the last hour.
	Unasked Verdict = iota
	// Accepted means that it has accepted the token, or that listproxy has verified the caller itself.
	Accepted
	// Refused means that it has answered 401 to the token within the last ten seconds.
	Refused
	// Anonymous means that the caller has no token.
	Anonymous
)

// Tokens remembers the verdicts on tokens, by the keys of their callers, in bounded memory. It is safe for concurrent
// use.
type Tokens struct {
	accepted *cache.LRUExpireCache // of limits.Flow
	refused  *cache.LRUExpireCache
}

// NewTokens returns Tokens without any verdict.
func NewTokens() *Tokens {
	return &Tokens{accepted: cache.NewLRUExpireCache(acceptedTokens), refused: cache.NewLRUExpireCache(refusedTokens)}
}

// Caller returns the verdict on a caller's credentials, and the flow of the caller's requests: the caller's own if it
// is accepted, otherwise that of its address.
func (t *Tokens) Caller(id Identity, remoteAddr string) (Verdict, limits.Flow) {
	switch {
	case id.Impersonated() != nil:
		return Accepted, FlowOf(id, true, remoteAddr)
	case !id.HasToken():
		return Anonymous, FlowOf(id, false, remoteAddr)
	}
	if flow, ok := t.accepted.Get(id.callerKey); ok {
		flow, _ := flow.(limits.Flow)
		return Accepted, flow
	}
	if _, ok := t.refused.Get(id.callerKey); ok {
		return Refused, FlowOf(id, false, remoteAddr)
	}
	return Unasked, FlowOf(id, false, remoteAddr)
}

// Answered remembers the verdict that follows from the status of the API server's answer to a request. None follows if
// the request asked for an upgrade: its token may be in a WebSocket header.
func (t *Tokens) Answered(id Identity, upgrade bool, method string, status int) {
	switch {
	case upgrade || !id.HasToken():
	case status == http.StatusUnauthorized:
		t.accepted.Remove(id.callerKey)
		t.refused.Add(id.callerKey, nil, refusedFor)
	case provesAuthentication(method, status):
		if _, known := t.accepted.Get(id.callerKey); !known {
			t.refused.Remove(id.callerKey)
			t.accepted.Add(id.callerKey, FlowOf(id, true, ""), acceptedFor)
		}
	}
}

// provesAuthentication reports whether kube-apiserver gives such an answer only to callers whom it has authenticated.
// It gives some answers before it checks a token (DefaultBuildHandlerChain in k8s.io/apiserver/pkg/server): 400 to a
// malformed timeout, the answer to a CORS preflight, 429 and 5xx when it is overloaded or shuts down.
func provesAuthentication(method string, status int) bool {
	if method == http.MethodOptions {
		return false
	}
	return status >= http.StatusOK && status < http.StatusMultipleChoices || status == http.StatusForbidden
}
