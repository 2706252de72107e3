package kubehttp

import (
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
)

// CacheStatusHeader is the header that says where an answer came from (RFC 9211):
//
//	listproxy; hit; detail=any                         from memory; detail is the semantics of the list
//	listproxy; hit; detail=any; upstream=unreachable   the same, while no API server answers
//	listproxy; fwd=miss; detail=warming                from the API server: the state is not in memory; detail is the reason
//	listproxy; fwd=stale; detail=stale                 from the API server: the state in memory is too old
//	listproxy; fwd=bypass; detail=write                from the API server: memory was not asked
const CacheStatusHeader = "Cache-Status"

// CacheHitUnreachable is appended to CacheHit's value while no API server answers.
const CacheHitUnreachable = "; upstream=unreachable"

// CacheHit returns the header's value for an answer from memory.
func CacheHit(semantics policy.Semantics) string {
	return "listproxy; hit; detail=" + string(semantics)
}

// CacheForwarded returns the header's value for the answer to a forwarded request.
func CacheForwarded(why reason.Reason) string {
	fwd := "bypass"
	switch why {
	case reason.Warming, reason.History, reason.NotProven: // the state is not in memory, or not yet
		fwd = "miss"
	case reason.Stale:
		fwd = "stale"
	}
	return "listproxy; fwd=" + fwd + "; detail=" + string(why)
}

// SetCacheHit sets the header of an answer from memory. unreachable means that no API server answers.
func SetCacheHit(h http.Header, semantics policy.Semantics, unreachable bool) {
	value := CacheHit(semantics)
	if unreachable {
		value += CacheHitUnreachable
	}
	h.Set(CacheStatusHeader, value)
}

// ReadCacheStatus reads a value of the header as listproxy writes it. detail is the semantics of a hit, or the reason to
// forward.
func ReadCacheStatus(value string) (hit bool, detail string) {
	for parameter := range strings.SplitSeq(value, ";") {
		parameter = strings.TrimSpace(parameter)
		hit = hit || parameter == "hit"
		if word, ok := strings.CutPrefix(parameter, "detail="); ok {
			detail = word
		}
	}
	return hit, detail
}
