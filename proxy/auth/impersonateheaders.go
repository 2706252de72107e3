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

// asksToImpersonate reports whether h has a header that asks to act as another user.
func asksToImpersonate(h http.Header) bool {
	for name := range h {
		if policy.NamesImpersonation(name) {
			return true
		}
	}
	return false
}

// readImpersonation returns the user whom the Impersonate-* headers in h name, and whether there are such
// headers and they can be read in one way only: they are the ones that listproxy itself would write
// for that user. So kube-apiserver neither refuses them nor ignores a part (two users, a group without a user, a
// header that is not known), and two keys of extra are not the same one in two spellings.
func readImpersonation(h http.Header) (named *user.DefaultInfo, ok bool) {
	if !asksToImpersonate(h) {
		return nil, false
	}
	given, written := http.Header{}, http.Header{}
	named = &user.DefaultInfo{Name: h.Get("Impersonate-User"), UID: h.Get("Impersonate-Uid"), Groups: h["Impersonate-Group"], Extra: map[string][]string{}}
	for name, values := range h {
		if !policy.NamesImpersonation(name) {
			continue
		}
		given[name] = values
		if escaped, isExtra := strings.CutPrefix(name, "Impersonate-Extra-"); isExtra {
			key, _ := url.PathUnescape(strings.ToLower(escaped)) // as the upstream reads it
			named.Extra[key] = values
		}
	}
	setImpersonation(written, named)
	return named, exactlyNamed(named) && reflect.DeepEqual(written, given)
}

// impersonable returns the user to impersonate for info, and whether Impersonate-* headers can name
// that user exactly.
//
// Impersonating gives no more rights than the certificate would at the upstream:
//
//   - The groups always hold the one that every authenticated user gets there. Without any group
//     the upstream would add the groups of a service account for a user with such a name
//     (k8s.io/apiserver/pkg/endpoints/filters/impersonation).
//   - system:anonymous would get the group system:unauthenticated: see exactlyNamed.
func impersonable(info user.Info) (*user.DefaultInfo, bool) {
	impersonated := &user.DefaultInfo{Name: info.GetName(), UID: info.GetUID(), Groups: slices.Clone(info.GetGroups()), Extra: info.GetExtra()}
	if !exactlyNamed(impersonated) {
		return nil, false
	}
	if !slices.Contains(impersonated.Groups, user.AllAuthenticated) && !slices.Contains(impersonated.Groups, user.AllUnauthenticated) {
		impersonated.Groups = append(impersonated.Groups, user.AllAuthenticated)
	}
	return impersonated, true
}

// exactlyNamed reports whether Impersonate-* headers can name a user exactly: each value must arrive as it
// was sent, and system:anonymous is nobody.
func exactlyNamed(u *user.DefaultInfo) bool {
	if u.Name == user.Anonymous || !arrivesAsSent(u.Name) || u.UID != "" && !arrivesAsSent(u.UID) || !allArriveAsSent(u.Groups) {
		return false
	}
	for name, values := range u.Extra {
		// The upstream reads these names in lower case.
		if name == "" || name != strings.ToLower(name) || !allArriveAsSent(values) {
			return false
		}
	}
	return true
}

func allArriveAsSent(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !arrivesAsSent(v) })
}

// arrivesAsSent reports whether a header's value arrives as it was sent.
func arrivesAsSent(value string) bool {
	return value != "" && strings.TrimSpace(value) == value && httpguts.ValidHeaderFieldValue(value)
}

// setImpersonation sets the Impersonate-* headers that name a user. All such headers that h had
// before are removed, in any spelling.
func setImpersonation(h http.Header, u *user.DefaultInfo) {
	for name := range h {
		if strings.EqualFold(name, "Authorization") || policy.NamesImpersonation(name) {
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

// escapeExtra writes the name of an extra so that it can be part of a header's name. The
// upstream reads it with url.PathUnescape.
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
