package auth

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"github.com/listproxy/listproxy/policy"
)

// writeImpersonation replaces Authorization and all Impersonate-* headers in h, in any spelling, by Impersonate-* headers that
// name u.
func writeImpersonation(h http.Header, u *user.DefaultInfo) {
	for name := range h {
		if strings.EqualFold(name, "Authorization") || policy.IsImpersonationHeader(name) {
			delete(h, name)
		}
	}
	// client-go's RoundTripper adds the headers to a request, escaped as kube-apiserver expects. headerRecorder copies these to
	// h.
	named := transport.ImpersonationConfig{UserName: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
	writer := transport.NewImpersonatingRoundTripper(named, headerRecorder(h))
	_, _ = writer.RoundTrip(&http.Request{}) //nolint:bodyclose // the response has none
}

// headerRecorder implements [http.RoundTripper]. It records the header of a request instead of sending the request.
type headerRecorder http.Header

func (h headerRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	maps.Copy(h, r.Header)
	return &http.Response{}, nil
}

// readImpersonation returns the user whom the Impersonate-* headers in h name. It checks its result: ok is true only if
// [writeImpersonation] writes exactly these headers for this user. So ok is false for headers that kube-apiserver would refuse
// or ignore, such as a second Impersonate-User, or two spellings of one extra's key.
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
			// As at kube-apiserver, the key is first turned into lower case, then unescaped. For a malformed key, PathUnescape
			// returns "", for which canBeImpersonated returns false.
			key, _ := url.PathUnescape(strings.ToLower(escaped))
			impersonated.Extra[key] = values
		}
	}
	written := http.Header{} // must equal given
	writeImpersonation(written, impersonated)
	if !canBeImpersonated(impersonated) || !reflect.DeepEqual(written, given) {
		return nil, false
	}
	return impersonated, true
}

// hasImpersonation reports whether h has an Impersonate-* header, in any spelling.
func hasImpersonation(h http.Header) bool {
	for name := range h {
		if policy.IsImpersonationHeader(name) {
			return true
		}
	}
	return false
}

// userToImpersonate returns the user to impersonate for info, the user of a verified client certificate. ok is false if
// Impersonate-* headers cannot name this user exactly.
//
// The impersonated user must have exactly the rights that kube-apiserver would give to the certificate itself. kube-apiserver
// adds the group system:authenticated to a certificate's user, unless the user is in system:unauthenticated. userToImpersonate
// adds this group, too, so that the headers name at least one group. Without a group in the headers, kube-apiserver would give
// a user with the name of a service account the groups of that account (k8s.io/apiserver/pkg/endpoints/filters/impersonation).
func userToImpersonate(info user.Info) (impersonated *user.DefaultInfo, ok bool) {
	impersonated = &user.DefaultInfo{
		Name:   info.GetName(),
		UID:    info.GetUID(),
		Groups: slices.Clone(info.GetGroups()),
		Extra:  info.GetExtra(),
	}
	if !canBeImpersonated(impersonated) {
		return nil, false
	}
	groups := impersonated.Groups
	if !slices.Contains(groups, user.AllAuthenticated) && !slices.Contains(groups, user.AllUnauthenticated) {
		impersonated.Groups = append(impersonated.Groups, user.AllAuthenticated)
	}
	return impersonated, true
}

// canBeImpersonated reports whether kube-apiserver sees exactly u if Impersonate-* headers name u. Each value must arrive
// unchanged, and the user must not be system:anonymous, whom kube-apiserver would put into the group system:unauthenticated.
func canBeImpersonated(u *user.DefaultInfo) bool {
	values := append([]string{u.Name}, u.Groups...)
	if u.UID != "" {
		values = append(values, u.UID)
	}
	for key, extra := range u.Extra {
		isLowerCase := key == strings.ToLower(key) // kube-apiserver turns the header's name into lower case
		if key == "" || !isLowerCase {
			return false
		}
		values = append(values, extra...)
	}
	return u.Name != user.Anonymous && !slices.ContainsFunc(values, arrivesChanged)
}

// arrivesChanged reports whether kube-apiserver would not read value from a header as it is. kube-apiserver ignores empty
// values, removes spaces around a value, and refuses control characters.
func arrivesChanged(value string) bool {
	return value == "" || strings.TrimSpace(value) != value || !httpguts.ValidHeaderFieldValue(value)
}
