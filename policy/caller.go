package policy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Caller names the users that a rule is about, as kube-apiserver calls them. Exactly one of its
// fields is set.
type Caller struct {
	User, Group string
	// ServiceAccount is namespace/name.
	ServiceAccount string
}

// is reports whether c names the user.
func (c Caller) is(u user.Info) bool {
	switch namespace, name, _ := strings.Cut(c.ServiceAccount, "/"); {
	case c.ServiceAccount != "":
		return serviceaccount.MatchesUsername(namespace, name, u.GetName())
	case c.Group != "":
		return slices.Contains(u.GetGroups(), c.Group)
	}
	return c.User != "" && c.User == u.GetName()
}

// String says it in words: "user jane", "group ci" or "service account ci/builder".
func (c Caller) String() string {
	switch {
	case c.ServiceAccount != "":
		return "service account " + c.ServiceAccount
	case c.Group != "":
		return "group " + c.Group
	}
	return "user " + c.User
}

// GetsAny reports whether this user's lists of the newest state are answered with any state.
func (r Rule) GetsAny(u user.Info) bool {
	return slices.ContainsFunc(r.NewestAsAny, func(c Caller) bool { return c.is(u) })
}

// NamesCallers reports whether some rule depends on who asks.
func (c *Config) NamesCallers() bool {
	for _, rule := range c.rules {
		if len(rule.NewestAsAny) > 0 {
			return true
		}
	}
	return false
}

// wrongUser says why no caller can be the user of this name, and what to write instead; empty if
// one can.
func wrongUser(name string) string {
	switch {
	case name == user.Anonymous:
		return "is whoever has not said who they are, and requests without credentials are always forwarded: name a user"
	case !strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix):
		return wrongName(name)
	}
	namespace, account, err := serviceaccount.SplitUsername(name)
	if err != nil {
		return "is no service account's name: write \"serviceAccount: namespace/name\""
	}
	return "is a service account: write \"serviceAccount: " + namespace + "/" + account + "\""
}

// wrongGroup says why the group has no members, or everybody, and what to write instead; empty if
// neither is so.
func wrongGroup(name string) string {
	switch name {
	case user.AllAuthenticated:
		return "is every caller: name those who read what others have written, and need not see it at once"
	case user.AllUnauthenticated:
		return "is whoever has not said who they are, and requests without credentials are always forwarded: name another group"
	case serviceaccount.AllServiceAccountsGroup:
		return "is every service account, all controllers among them: name service accounts, or write " +
			serviceaccount.ServiceAccountGroupPrefix + "NAMESPACE"
	}
	if namespace, ok := strings.CutPrefix(name, serviceaccount.ServiceAccountGroupPrefix); ok &&
		len(validation.IsDNS1123Label(namespace)) > 0 {
		return "is nobody's group, since no namespace is called so: write " + serviceaccount.ServiceAccountGroupPrefix + "NAMESPACE"
	}
	return wrongName(name)
}

// wrongName is what users and groups have in common.
func wrongName(name string) string {
	switch {
	case name == "":
		return "is nobody: write the name as \"kubectl auth whoami\" shows it"
	case strings.Contains(name, "*"):
		return "is no pattern, so it would be nobody: write one name as \"kubectl auth whoami\" shows it"
	case strings.TrimSpace(name) != name, strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "has spaces around it, or control characters, so it would be nobody: write the name as \"kubectl auth whoami\" shows it"
	}
	return ""
}

// wrongServiceAccount says what is wrong with namespace/name; empty if nothing is.
func wrongServiceAccount(value string) string {
	namespace, name, found := strings.Cut(value, "/")
	switch {
	case !found:
		return "has no namespace: write namespace/name"
	case len(validation.IsDNS1123Label(namespace)) > 0, len(validation.IsDNS1123Subdomain(name)) > 0:
		return "is no service account's name, so it would be nobody: write namespace/name in lower case"
	}
	return ""
}
