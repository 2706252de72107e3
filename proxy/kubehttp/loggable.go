package kubehttp

import (
	"net/http"
	"regexp"
	"strings"
)

// loggedWord is the form of groups, versions, resources, subresources and verbs. Most tokens have capitals or are
// longer, and the log masks bootstrap tokens.
var loggedWord = regexp.MustCompile(`^[a-z][a-z0-9.-]{0,39}$`)

// loggedNamespace is what namespaces look like (RFC 1123, a label).
var loggedNamespace = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`)

// unloggable stands for a word that may be a credential.
const unloggable = "?"

// Describe returns what a request is for, in words of the API, for the log. Somebody may have put a
// credential into a request, so these are left out: the query (with exec it holds what somebody
// typed), names of objects, and every path that is not a resource's.
func Describe(r *http.Request) string {
	target, _ := DescribeWithNamespace(r)
	return target
}

// DescribeWithNamespace is [Describe], with the namespace, which is empty if there is none: an
// operator needs it to find who asks, and there are few. The names of objects are many, and some are
// another's secret; kube-apiserver's audit log has them, for those who may read it.
func DescribeWithNamespace(r *http.Request) (target, namespace string) {
	if r.URL == nil {
		return "other", ""
	}
	info := Of(r).Info
	if !info.IsResourceRequest {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch first {
		case "api", "apis", "openapi", "version", "healthz", "livez", "readyz", "metrics", "logs", "debug", ".well-known":
			return "/" + first, ""
		}
		return "other", ""
	}
	words := []string{info.Verb, info.Resource, info.Subresource, info.APIVersion, info.APIGroup}
	kept := words[:0]
	for _, word := range words {
		if word != "" {
			kept = append(kept, loggableWord(word, loggedWord))
		}
	}
	if info.Namespace != "" {
		namespace = loggableWord(info.Namespace, loggedNamespace)
	}
	return strings.Join(kept, " "), namespace
}

// loggableWord is a word of a path, if it looks as it should.
func loggableWord(word string, form *regexp.Regexp) string {
	if !form.MatchString(word) {
		return unloggable
	}
	return word
}
