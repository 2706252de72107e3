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

// Verdict is what listproxy knows of whether the API server accepts a caller's credentials.
type Verdict int

const (
	// Unjudged means that no verdict on the token is remembered.
	Unjudged Verdict = iota
	// Accepted means that the API server has accepted the token, or that listproxy has verified the caller itself.
	Accepted
	// Refused means that the API server has answered 401 to the token in the last ten seconds (refusedTTL).
	Refused
	// NoToken means that the caller has no token and is not a verified user.
	NoToken
)

// Verdicts remembers the verdicts on a bounded number of tokens. Both caches have Identity.callerKey as the key of a token. A
// Verdicts is safe for concurrent use.
type Verdicts struct {
	// accepted has the limits.Flow of the caller for each accepted token.
	accepted *cache.LRUExpireCache
	// refused has the refused tokens. The values are nil.
	refused *cache.LRUExpireCache
}

// NewVerdicts returns a Verdicts that remembers no verdict yet.
func NewVerdicts() *Verdicts {
	return &Verdicts{
		accepted: cache.NewLRUExpireCache(maxAcceptedTokens),
		refused:  cache.NewLRUExpireCache(maxRefusedTokens),
	}
}

// VerdictOn returns the verdict on a caller's credentials, and the flow of the caller's requests. A flow is what the limits are
// shared by. For an accepted caller, the flow depends on the credentials ([FlowOf]). For any other caller, it depends on the
// address ([FlowOfAddress]).
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

// AcceptedFlow returns the flow of a caller whose credentials are known to be accepted. Otherwise accepted is false.
func (v *Verdicts) AcceptedFlow(id Identity) (flow limits.Flow, accepted bool) {
	if id.VerifiedUser() != nil {
		return FlowOf(id), true
	}
	kept, _ := v.accepted.Get(id.callerKey)
	flow, accepted = kept.(limits.Flow)
	return flow, accepted
}

// RecordAnswer remembers the verdict that follows from the status with which the API server answered a caller's request.
// upgrade means that the request asked for another protocol, such as WebSocket. Its answer changes no verdict, since the API
// server may have judged a token in a WebSocket header instead of the one in Authorization.
func (v *Verdicts) RecordAnswer(id Identity, upgrade bool, method string, status int) {
	if upgrade || !id.HasToken() {
		return
	}
	switch {
	case status == http.StatusUnauthorized:
		v.accepted.Remove(id.callerKey)
		v.refused.Add(id.callerKey, nil, refusedTTL)
	case provesAuthentication(method, status):
		// A token that is already accepted keeps its entry. Otherwise FlowOf would parse the token at each answer.
		if _, known := v.accepted.Get(id.callerKey); known {
			return
		}
		v.refused.Remove(id.callerKey)
		v.accepted.Add(id.callerKey, FlowOf(id), acceptedTTL)
	}
}

// provesAuthentication reports whether kube-apiserver gives an answer with this status only to callers whom it has
// authenticated (DefaultBuildHandlerChain in k8s.io/apiserver/pkg/server):
//
//	OPTIONS     no: a CORS preflight is answered before authentication
//	2xx, 403    yes
//	400         no: a malformed timeout is refused before authentication
//	429, 5xx    no: a request is refused before authentication while kube-apiserver is overloaded or shuts down
func provesAuthentication(method string, status int) bool {
	isSuccess := status >= http.StatusOK && status < http.StatusMultipleChoices
	return method != http.MethodOptions && (isSuccess || status == http.StatusForbidden)
}
