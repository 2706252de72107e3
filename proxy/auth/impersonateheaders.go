package auth

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
)

// hasImpersonation reports whether h has an Impersonate-* header.
func hasImpersonation(h http.Header) bool {
	for name := range h {
		if policy.IsImpersonationHeader(name) {
			return true
		}
	}
	return false
}

// readImpersonation returns the user whom the Impersonate-* headers in h name. ok is true if there are such headers,
// and they are exactly those that listproxy would write for this user. So kube-apiserver neither refuses them nor
// ignores any of them, as it would a second user, a group without a user, or an unknown header. And no extra key occurs
// in two spellings.
func readImpersonation(h http.Header) (named *user.DefaultInfo, ok bool) {
	if !hasImpersonation(h) {
		return nil, false
	}
	given, written := http.Header{}, http.Header{}
	named = &user.DefaultInfo{Name: h.Get("Impersonate-User"), UID: h.Get("Impersonate-Uid"), Groups: h["Impersonate-Group"], Extra: map[string][]string{}}
	for name, values := range h {
		if !policy.IsImpersonationHeader(name) {
			continue
		}
		given[name] = values
		if escaped, isExtra := strings.CutPrefix(name, "Impersonate-Extra-"); isExtra {
			key, _ := url.PathUnescape(strings.ToLower(escaped)) // as kube-apiserver reads it
			named.Extra[key] = values
		}
	}
	setImpersonation(written, named)
	return named, isNamedExactly(named) && reflect.DeepEqual(written, given)
}

// impersonable returns the user to impersonate for info, and whether Impersonate-* headers can name this user exactly.
//
// The user gets no more rights than with a client certificate directly at kube-apiserver. There every authenticated
// user is in system:authenticated, so that group is added here. Without any group kube-apiserver would add those of a
// service account to a user with such a name (k8s.io/apiserver/pkg/endpoints/filters/impersonation).
func impersonable(info user.Info) (*user.DefaultInfo, bool) {
	impersonated := &user.DefaultInfo{Name: info.GetName(), UID: info.GetUID(), Groups: slices.Clone(info.GetGroups()), Extra: info.GetExtra()}
	if !isNamedExactly(impersonated) {
		return nil, false
	}
	if !slices.Contains(impersonated.Groups, user.AllAuthenticated) && !slices.Contains(impersonated.Groups, user.AllUnauthenticated) {
		impersonated.Groups = append(impersonated.Groups, user.AllAuthenticated)
	}
	return impersonated, true
}

// isNamedExactly reports whether Impersonate-* headers can name u exactly: each value must arrive unchanged, and
// kube-apiserver would put system:anonymous into the group system:unauthenticated.
func isNamedExactly(u *user.DefaultInfo) bool {
	if u.Name == user.Anonymous || !arrivesUnchanged(u.Name) || u.UID != "" && !arrivesUnchanged(u.UID) || !allArriveUnchanged(u.Groups) {
		return false
	}
	for name, values := range u.Extra {
		// kube-apiserver reads these names in lower case.
		if name == "" || name != strings.ToLower(name) || !allArriveUnchanged(values) {
			return false
		}
	}
	return true
}

func allArriveUnchanged(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !arrivesUnchanged(v) })
}

// arrivesUnchanged reports whether a header with this value arrives as it was sent.
func arrivesUnchanged(value string) bool {
	return value != "" && strings.TrimSpace(value) == value && httpguts.ValidHeaderFieldValue(value)
}

// setImpersonation replaces the Impersonate-* headers in h, in whatever spelling, and Authorization by headers that
// name u.
func setImpersonation(h http.Header, u *user.DefaultInfo) {
	for name := range h {
		if strings.EqualFold(name, "Authorization") || policy.IsImpersonationHeader(name) {
			delete(h, name)
		}
	}
	h["Impersonate-User"] = []string{u.Name}
	if len(u.Groups) > 0 {
		h["Impersonate-Group"] = slices.Clone(u.Groups)
	}
	if u.UID != "" {
		h["Impersonate-Uid"] = []string{u.UID}
	}
	for name, values := range u.Extra {
		key := http.CanonicalHeaderKey("Impersonate-Extra-" + escapeExtra(name))
		h[key] = append(h[key], values...)
	}
}

// escapeExtra escapes the name of an extra, so that it can be part of a header's name. kube-apiserver reads it with
// url.PathUnescape.
func escapeExtra(name string) string {
	var escaped strings.Builder
	for _, b := range []byte(name) {
		if b != '%' && httpguts.IsTokenRune(rune(b)) {
			escaped.WriteByte(b)
		} else {
			fmt.Fprintf(&escaped, "%%%02X", b)
		}
	}
	return escaped.String()
}
