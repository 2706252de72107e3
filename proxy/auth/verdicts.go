package auth

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/listproxy/listproxy/proxy/limits"
)

const (
	// maxAcceptedTokens bounds the accepted tokens that are remembered. The least recently used token is forgotten first.
	// Its next request is reviewed like that of a new token.
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
	// Refused means that the API server has answered 401 to the token in the last refusedTTL.
	Refused
	// NoToken means that there is nothing to judge: the caller has no token and is not a verified user.
	NoToken
)

// Verdicts remembers the verdicts on a bounded number of tokens. The key of both maps is
// Identity.callerKey, and only callers with a token are in them. A Verdicts is safe for concurrent use.
type Verdicts struct {
	// accepted maps each accepted token to the limits.Flow of its caller.
	accepted *cache.LRUExpireCache
	// refused maps each refused token to nil.
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
	if flow, accepted := v.AcceptedFlow(id); accepted {
		return Accepted, flow
	}
	flow := FlowOfAddress(remoteAddr)
	if !id.HasToken() {
		return NoToken, flow
	}
	if _, refused := v.refused.Get(id.callerKey); refused {
		return Refused, flow
	}
	return Unjudged, flow
}

// AcceptedFlow returns the flow of a caller whose credentials are accepted. If they are not, or not yet, accepted is false.
func (v *Verdicts) AcceptedFlow(id Identity) (flow limits.Flow, accepted bool) {
	if id.VerifiedUser() != nil {
		return FlowOf(id), true
	}
	kept, _ := v.accepted.Get(id.callerKey)
	flow, accepted = kept.(limits.Flow)
	return flow, accepted
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
			return // Renewing the entry would call FlowOf at each request, which parses the token. So it expires acceptedTTL after Add.
		}
		v.refused.Remove(id.callerKey)
		v.accepted.Add(id.callerKey, FlowOf(id), acceptedTTL)
	}
}

// provesAuthentication reports whether kube-apiserver gives an answer with this status only to callers whom it has
// authenticated. That holds for a 2xx and a 403, except for OPTIONS: a CORS preflight is answered before authentication. A
// 400 (a malformed timeout) and a 429 or 5xx (kube-apiserver is overloaded or shuts down) may come before authentication,
// too. See DefaultBuildHandlerChain in k8s.io/apiserver/pkg/server.
func provesAuthentication(method string, status int) bool {
	isSuccess := status >= http.StatusOK && status < http.StatusMultipleChoices
	return method != http.MethodOptions && (isSuccess || status == http.StatusForbidden)
}
