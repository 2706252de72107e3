package authn

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
)

// asksToImpersonate says whether h has a header that asks to act as another user.
func asksToImpersonate(h http.Header) bool {
	for name := range h {
		if policy.NamesImpersonation(name) {
			return true
		}
	}
	return false
}

// impersonable returns the user to impersonate for info, and whether Impersonate-* headers can name
// that user exactly: each value must arrive as it was sent.
//
// Impersonating gives no more rights than the certificate would at the upstream:
//
//   - The groups always hold the one that every authenticated user gets there. Without any group
//     the upstream would add the groups of a service account for a user with such a name
//     (k8s.io/apiserver/pkg/endpoints/filters/impersonation).
//   - system:anonymous would get the group system:unauthenticated, so this user is never
//     impersonated.
func impersonable(info user.Info) (*user.DefaultInfo, bool) {
	impersonated := &user.DefaultInfo{Name: info.GetName(), UID: info.GetUID(), Groups: slices.Clone(info.GetGroups()), Extra: info.GetExtra()}
	if impersonated.Name == user.Anonymous || !arrivesAsSent(impersonated.Name) || impersonated.UID != "" && !arrivesAsSent(impersonated.UID) {
		return nil, false
	}
	for _, group := range impersonated.Groups {
		if !arrivesAsSent(group) {
			return nil, false
		}
	}
	for name, values := range impersonated.Extra {
		// The upstream reads these names in lower case.
		if name == "" || name != strings.ToLower(name) || !allArriveAsSent(values) {
			return nil, false
		}
	}
	if !slices.Contains(impersonated.Groups, user.AllAuthenticated) && !slices.Contains(impersonated.Groups, user.AllUnauthenticated) {
		impersonated.Groups = append(impersonated.Groups, user.AllAuthenticated)
	}
	return impersonated, true
}

func allArriveAsSent(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !arrivesAsSent(v) })
}

// arrivesAsSent says whether a header's value arrives as it was sent.
func arrivesAsSent(value string) bool {
	return value != "" && strings.TrimSpace(value) == value && httpguts.ValidHeaderFieldValue(value)
}

// setImpersonation sets the Impersonate-* headers that name the caller. All such headers that h had
// before are removed, in any spelling.
func setImpersonation(h http.Header, u *user.DefaultInfo) {
	for name := range h {
		if strings.EqualFold(name, "Authorization") || policy.NamesImpersonation(name) {
			delete(h, name)
		}
	}
	h["Impersonate-User"] = []string{u.Name}
	h["Impersonate-Group"] = slices.Clone(u.Groups)
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
