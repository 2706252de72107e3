package auth

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/listproxy/listproxy/proxy/limits"
)

const (
	// maxAcceptedTokens is the number of accepted tokens that are remembered, for acceptedTTL: those that were used last.
	// A token that was forgotten is reviewed like a new token.
	maxAcceptedTokens = 64 << 10
	acceptedTTL       = time.Hour
	// maxRefusedTokens is the number of refused tokens that are remembered, for refusedTTL. They are remembered apart, so
	// that made-up tokens cannot push out accepted ones.
	maxRefusedTokens = 4 << 10
	refusedTTL       = 10 * time.Second
)

// Verdict says what is known about whether the API server accepts a caller's credentials.
type Verdict int

const (
	// Unasked means that the API server has not judged the token, or not within acceptedTTL.
	Unasked Verdict = iota
	// Accepted means that the API server has accepted the token, or that listproxy has verified the caller itself.
	Accepted
	// Refused means that the API server has answered 401 to the token within refusedTTL.
	Refused
	// Anonymous means that the caller has no token.
	Anonymous
)

// Tokens remembers the verdicts on tokens, by the keys of their callers. Its memory is bounded. It is safe for concurrent
// use.
type Tokens struct {
	// accepted has the limits.Flow of each accepted token.
	accepted *cache.LRUExpireCache
	// refused has nothing but the keys.
	refused *cache.LRUExpireCache
}

// NewTokens returns Tokens without any verdict.
func NewTokens() *Tokens {
	return &Tokens{
		accepted: cache.NewLRUExpireCache(maxAcceptedTokens),
		refused:  cache.NewLRUExpireCache(maxRefusedTokens),
	}
}

// VerdictOn returns the verdict on a caller's credentials, and the flow of the caller's requests: [FlowOf] the caller if the
// verdict is Accepted, otherwise that of the address.
func (t *Tokens) VerdictOn(id Identity, remoteAddr string) (Verdict, limits.Flow) {
	switch {
	case id.VerifiedUser() != nil:
		return Accepted, FlowOf(id)
	case !id.HasToken():
		return Anonymous, FlowOfAddress(remoteAddr)
	}
	if kept, ok := t.accepted.Get(id.callerKey); ok {
		flow, _ := kept.(limits.Flow)
		return Accepted, flow
	}
	if _, ok := t.refused.Get(id.callerKey); ok {
		return Refused, FlowOfAddress(remoteAddr)
	}
	return Unasked, FlowOfAddress(remoteAddr)
}

// RecordAnswer remembers the verdict that follows from the API server's answer to a request with this method and status.
// No verdict follows if the request asked for an upgrade, since its token may be in a WebSocket header.
func (t *Tokens) RecordAnswer(id Identity, upgrade bool, method string, status int) {
	if upgrade || !id.HasToken() {
		return
	}
	switch {
	case status == http.StatusUnauthorized:
		t.accepted.Remove(id.callerKey)
		t.refused.Add(id.callerKey, nil, refusedTTL)
	case provesAuthentication(method, status):
		if _, known := t.accepted.Get(id.callerKey); known {
			return // the token keeps its flow, and the time of its verdict
		}
		t.refused.Remove(id.callerKey)
		t.accepted.Add(id.callerKey, FlowOf(id), acceptedTTL)
	}
}

// provesAuthentication reports whether kube-apiserver gives an answer with this status only to callers whom it has
// authenticated. That holds for a 2xx (but for the answer to a CORS preflight) and a 403. Before authentication it gives
// 400 to a malformed timeout, and 429 and 5xx while it is overloaded or shuts down (DefaultBuildHandlerChain in
// k8s.io/apiserver/pkg/server).
func provesAuthentication(method string, status int) bool {
	if method == http.MethodOptions {
		return false
	}
	return status >= http.StatusOK && status < http.StatusMultipleChoices || status == http.StatusForbidden
}
