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

// readImpersonation returns the user whom the Impersonate-* headers in h name. ok is true if there are such headers, and
// listproxy would write exactly the same headers for this user. Then kube-apiserver neither refuses any of them nor ignores
// any, as it ignores a second user, for example. And no key of an extra occurs in two spellings.
func readImpersonation(h http.Header) (named *user.DefaultInfo, ok bool) {
	if !hasImpersonation(h) {
		return nil, false
	}
	named = &user.DefaultInfo{
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
			key, _ := url.PathUnescape(strings.ToLower(escaped)) // as kube-apiserver reads it
			named.Extra[key] = values
		}
	}
	written := http.Header{}
	setImpersonation(written, named)
	return named, isNamedExactly(named) && reflect.DeepEqual(written, given)
}

// impersonable returns the user to impersonate for info. ok is false if Impersonate-* headers cannot name info exactly.
//
// The user has the same rights as with the client certificate at kube-apiserver, which puts every authenticated user into
// system:authenticated. So that group is added here. Without any group, kube-apiserver would add the groups of a service
// account if the user has the name of one (k8s.io/apiserver/pkg/endpoints/filters/impersonation).
func impersonable(info user.Info) (impersonated *user.DefaultInfo, ok bool) {
	impersonated = &user.DefaultInfo{
		Name:   info.GetName(),
		UID:    info.GetUID(),
		Groups: slices.Clone(info.GetGroups()),
		Extra:  info.GetExtra(),
	}
	if !isNamedExactly(impersonated) {
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

// isNamedExactly reports whether Impersonate-* headers can name u exactly: each value must arrive unchanged. The user must
// not be system:anonymous, whom kube-apiserver would put into the group system:unauthenticated.
func isNamedExactly(u *user.DefaultInfo) bool {
	validUID := u.UID == "" || arrivesUnchanged(u.UID)
	if u.Name == user.Anonymous || !arrivesUnchanged(u.Name) || !validUID || !allArriveUnchanged(u.Groups) {
		return false
	}
	for key, values := range u.Extra {
		isLowerCase := key == strings.ToLower(key) // as kube-apiserver reads every key
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

// setImpersonation removes Authorization and all Impersonate-* headers from h, in any spelling, and adds Impersonate-*
// headers that name u.
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
