package auth

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/listproxy/listproxy/proxy/limits"
)

const (
	// maxAcceptedTokens bounds the accepted tokens that are remembered. The token whose last use is longest ago is forgotten
	// first. A forgotten token is reviewed like a new one.
	maxAcceptedTokens = 64 << 10
	// acceptedTTL is the time for which an accepted token is remembered.
	acceptedTTL = time.Hour
	// maxRefusedTokens bounds the refused tokens that are remembered. They have a bound of their own, so that made-up tokens
	// cannot push out accepted ones.
	maxRefusedTokens = 4 << 10
	// refusedTTL is the time for which a refused token is remembered.
	refusedTTL = 10 * time.Second
)

// Verdict says what is known about whether the API server accepts a caller's credentials.
type Verdict int

const (
	// Unjudged means that no verdict on the token is remembered.
	Unjudged Verdict = iota
	// Accepted means that the API server has accepted the token, or that listproxy has verified the caller itself.
	Accepted
	// Refused means that the API server has answered 401 to the token within refusedTTL.
	Refused
	// NoToken means that there is nothing to judge: the caller has no token, and listproxy has not verified the caller.
	NoToken
)

// Verdicts remembers the verdicts on tokens, by the keys of their callers. Its memory is bounded. It is safe for concurrent
// use.
type Verdicts struct {
	// accepted maps the key of each accepted token to the limits.Flow of its caller.
	accepted *cache.LRUExpireCache
	// refused maps the key of each refused token to nil.
	refused *cache.LRUExpireCache
}

// NewVerdicts returns Verdicts that remember none yet.
func NewVerdicts() *Verdicts {
	return &Verdicts{
		accepted: cache.NewLRUExpireCache(maxAcceptedTokens),
		refused:  cache.NewLRUExpireCache(maxRefusedTokens),
	}
}

// VerdictOn returns the verdict on a caller's credentials, and the flow of the caller's requests. If the verdict is Accepted,
// the flow is taken from the caller ([FlowOf]), otherwise from the address ([FlowOfAddress]).
func (v *Verdicts) VerdictOn(id Identity, remoteAddr string) (Verdict, limits.Flow) {
	switch {
	case id.VerifiedUser() != nil:
		return Accepted, FlowOf(id)
	case !id.HasToken():
		return NoToken, FlowOfAddress(remoteAddr)
	}
	if kept, ok := v.accepted.Get(id.callerKey); ok {
		flow, _ := kept.(limits.Flow)
		return Accepted, flow
	}
	if _, ok := v.refused.Get(id.callerKey); ok {
		return Refused, FlowOfAddress(remoteAddr)
	}
	return Unjudged, FlowOfAddress(remoteAddr)
}

// RecordAnswer remembers the verdict that follows from the status with which the API server answered a caller's request. No
// verdict follows if the request asked for an upgrade: the API server may have judged a token in a WebSocket header instead.
func (v *Verdicts) RecordAnswer(id Identity, upgrade bool, method string, status int) {
	if upgrade || !id.HasToken() {
		return
	}
	switch {
	case status == http.StatusUnauthorized:
		v.accepted.Remove(id.callerKey)
		v.refused.Add(id.callerKey, nil, refusedTTL)
	case provesAuthentication(method, status):
		if _, known := v.accepted.Get(id.callerKey); known {
			return // The verdict is not renewed: that would take FlowOf, which parses the token, for every request.
		}
		v.refused.Remove(id.callerKey)
		v.accepted.Add(id.callerKey, FlowOf(id), acceptedTTL)
	}
}

// provesAuthentication reports whether kube-apiserver gives an answer with this status only to callers whom it has
// authenticated. It does so with a 2xx and a 403, unless the method is OPTIONS: it answers a CORS preflight before it
// authenticates the caller. So it does with a 400 for a malformed timeout, and with 429 and 5xx while it is overloaded or
// shuts down (DefaultBuildHandlerChain in k8s.io/apiserver/pkg/server).
func provesAuthentication(method string, status int) bool {
	isSuccess := status >= http.StatusOK && status < http.StatusMultipleChoices
	return method != http.MethodOptions && (isSuccess || status == http.StatusForbidden)
}
