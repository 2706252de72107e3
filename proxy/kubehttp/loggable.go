package kubehttp

import (
	"net/http"
	"regexp"
	"strings"
)

// loggableWord matches the words of a request that may be logged: groups, versions, resources, subresources and verbs of up to
// 40 characters. It matches few credentials, since most credentials have capitals or are longer. Bootstrap tokens are an
// exception: package telemetry masks them in the log.
var loggableWord = regexp.MustCompile(`^[a-z][a-z0-9.-]{0,39}$`)

// loggableNamespace matches the namespaces that may be logged: RFC 1123 labels, and "", which stands for no namespace.
var loggableNamespace = regexp.MustCompile(`^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)?$`)

// masked replaces a word that may be a credential.
const masked = "?"

// LoggedTarget returns the target of a request in words of the API, for the log, like "list pods v1". Any part of a request may
// have a credential, and the query of an exec has a command. So LoggedTarget leaves out the query and the names of objects. For
// a path that is not a resource's, it returns the first segment if that is well-known, like "/healthz", and "other" if not.
func LoggedTarget(r *http.Request) string {
	info := RequestOf(r).Info
	if !info.IsResourceRequest {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch first {
		case "api", "apis", "openapi", "version", "healthz", "livez", "readyz", "metrics", "logs", "debug", ".well-known":
			return "/" + first
		}
		return "other"
	}
	var words []string
	for _, word := range []string{info.Verb, info.Resource, info.Subresource, info.APIVersion, info.APIGroup} {
		if word != "" {
			words = append(words, maskUnless(loggableWord, word))
		}
	}
	return strings.Join(words, " ")
}

// LoggedNamespace returns the namespace of a request for the log, or "" if the request has none. The namespace helps an
// operator to find the client.
func LoggedNamespace(r *http.Request) string {
	return maskUnless(loggableNamespace, RequestOf(r).Info.Namespace)
}

// maskUnless returns word if it matches the pattern, and masked if not.
func maskUnless(pattern *regexp.Regexp, word string) string {
	if !pattern.MatchString(word) {
		return masked
	}
	return word
}
