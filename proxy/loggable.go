package proxy

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/listproxy/listproxy/policy"
)

// maxLoggedWord is longer than any name of Kubernetes' own in a path, and shorter than a token.
const maxLoggedWord = 40

// loggedWord is what groups, versions, resources, subresources and verbs look like. Tokens have
// capitals, dots between long parts, or are longer.
var loggedWord = regexp.MustCompile(`^[a-z0-9.-]{1,40}$`)

// loggable says what a request is for in words of the API, for the log: neither its query, which
// may hold what somebody typed (exec), nor the names of objects, nor anything else of a path that
// is no resource's. Somebody may have put a credential there.
func loggable(r *http.Request) string {
	if r.URL == nil {
		return "other"
	}
	info, err := policy.RequestInfo(r.Method, &url.URL{Path: r.URL.Path})
	if err != nil || !info.IsResourceRequest {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch first {
		case "api", "apis", "openapi", "version", "healthz", "livez", "readyz", "metrics", "logs", "debug", ".well-known":
			return "/" + first
		}
		return "other"
	}
	words := []string{info.Verb, info.Resource, info.Subresource, info.APIVersion, info.APIGroup}
	kept := words[:0]
	for _, word := range words {
		switch {
		case word == "":
		case len(word) <= maxLoggedWord && loggedWord.MatchString(word):
			kept = append(kept, word)
		default:
			kept = append(kept, "?")
		}
	}
	return strings.Join(kept, " ")
}
