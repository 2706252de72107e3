package kubehttp

import (
	"net/http"
	"regexp"
	"strings"
)

// loggedWord is the form of groups, versions, resources, subresources and verbs. Most tokens have capitals or are
// longer, and the log masks bootstrap tokens.
var loggedWord = regexp.MustCompile(`^[a-z][a-z0-9.-]{0,39}$`)

// loggedNamespace matches namespaces (RFC 1123, a label).
var loggedNamespace = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`)

// unloggable replaces a word that may be a credential.
const unloggable = "?"

// Describe returns the target of a request in words of the API, for the log. A request may have a credential in
// any part, so it leaves out the query (that of an exec has a command), names of objects, and every path that is
// not a resource's.
func Describe(r *http.Request) string {
	target, _ := DescribeWithNamespace(r)
	return target
}

// DescribeWithNamespace returns the same as [Describe], and the namespace, if there is one: an operator needs it to find
// the client. The names of objects are only in kube-apiserver's audit log, for those who may read it.
func DescribeWithNamespace(r *http.Request) (target, namespace string) {
	if r.URL == nil {
		return "other", ""
	}
	info := RequestOf(r).Info
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

// loggableWord returns a word of a path if it matches form, else unloggable.
func loggableWord(word string, form *regexp.Regexp) string {
	if !form.MatchString(word) {
		return unloggable
	}
	return word
}
