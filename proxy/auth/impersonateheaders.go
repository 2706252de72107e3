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

// hasImpersonation reports whether h has an Impersonate-* header, in any spelling.
func hasImpersonation(h http.Header) bool {
	for name := range h {
		if policy.IsImpersonationHeader(name) {
			return true
		}
	}
	return false
}

// readImpersonation returns the user whom the Impersonate-* headers in h name. ok is true only if listproxy itself would write
// exactly these headers for this user. That rules out headers that kube-apiserver would refuse or ignore (a second
// Impersonate-User, for example), and two spellings of one extra's key.
func readImpersonation(h http.Header) (impersonated *user.DefaultInfo, ok bool) {
	if !hasImpersonation(h) {
		return nil, false
	}
	impersonated = &user.DefaultInfo{
		Name:   h.Get("Impersonate-User"),
		UID:    h.Get("Impersonate-Uid"),
		Groups: h["Impersonate-Group"],
		Extra:  map[string][]string{},
	}
	given := http.Header{}
	for name, values := range h {
		if !policy.IsImpersonationHeader(name) {
			continue
		}
		given[name] = values
		if escaped, isExtra := strings.CutPrefix(name, "Impersonate-Extra-"); isExtra {
			// Like kube-apiserver: in lower case first, then unescaped. A malformed key becomes "", which canBeNamed refuses.
			key, _ := url.PathUnescape(strings.ToLower(escaped))
			impersonated.Extra[key] = values
		}
	}
	written := http.Header{}
	impersonate(written, impersonated)
	return impersonated, canBeNamed(impersonated) && reflect.DeepEqual(written, given)
}

// userToImpersonate returns the user to impersonate for info, the user of a verified client certificate. ok is false if
// Impersonate-* headers cannot name this user exactly.
//
// Impersonated, the user must have the rights that kube-apiserver would give to the certificate itself. kube-apiserver puts
// every authenticated user into system:authenticated, so that group is added here. Besides, to a user without any group and
// with the name of a service account, kube-apiserver would add the groups of that account
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation).
func userToImpersonate(info user.Info) (impersonated *user.DefaultInfo, ok bool) {
	impersonated = &user.DefaultInfo{
		Name:   info.GetName(),
		UID:    info.GetUID(),
		Groups: slices.Clone(info.GetGroups()),
		Extra:  info.GetExtra(),
	}
	if !canBeNamed(impersonated) {
		return nil, false
	}
	hasAuthenticationGroup := slices.ContainsFunc(impersonated.Groups, func(group string) bool {
		return group == user.AllAuthenticated || group == user.AllUnauthenticated
	})
	if !hasAuthenticationGroup {
		impersonated.Groups = append(impersonated.Groups, user.AllAuthenticated)
	}
	return impersonated, true
}

// canBeNamed reports whether Impersonate-* headers can name u so that kube-apiserver sees exactly u: each value must arrive
// unchanged. The user must not be system:anonymous, whom kube-apiserver would put into the group system:unauthenticated.
func canBeNamed(u *user.DefaultInfo) bool {
	if u.Name == user.Anonymous || !arrivesUnchanged(u.Name) {
		return false
	}
	if u.UID != "" && !arrivesUnchanged(u.UID) {
		return false
	}
	if !allArriveUnchanged(u.Groups) {
		return false
	}
	for key, values := range u.Extra {
		isLowerCase := key == strings.ToLower(key) // kube-apiserver turns the header's name into lower case
		if key == "" || !isLowerCase || !allArriveUnchanged(values) {
			return false
		}
	}
	return true
}

func allArriveUnchanged(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !arrivesUnchanged(v) })
}

// arrivesUnchanged reports whether a header with this value arrives as it was sent. An empty value would be ignored.
func arrivesUnchanged(value string) bool {
	return value != "" && strings.TrimSpace(value) == value && httpguts.ValidHeaderFieldValue(value)
}

// impersonate removes Authorization and all Impersonate-* headers from h, in any spelling, and adds Impersonate-* headers that
// name u.
func impersonate(h http.Header, u *user.DefaultInfo) {
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
	for key, values := range u.Extra {
		name := http.CanonicalHeaderKey("Impersonate-Extra-" + escapeExtraKey(key))
		h[name] = append(h[name], values...)
	}
}

// escapeExtraKey escapes the key of an extra, so that it can be part of a header's name. kube-apiserver reads it with
// url.PathUnescape.
func escapeExtraKey(key string) string {
	var escaped strings.Builder
	for _, b := range []byte(key) {
		if b != '%' && httpguts.IsTokenRune(rune(b)) {
			escaped.WriteByte(b)
		} else {
			fmt.Fprintf(&escaped, "%%%02X", b)
		}
	}
	return escaped.String()
}
