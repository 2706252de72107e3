package policy

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/test/expect"
)

// TestCallers: a rule is for whom it names, by all that kube-apiserver says of them, and for nobody
// else.
func TestCallers(t *testing.T) {
	c := parsed(t, `resources:
- group: ''
  resource: pods
  newestAsAny:
  - user: jane
  - group: pollers
  - group: system:serviceaccounts:inventory
  - serviceAccount: ci/builder
- group: ''
  resource: pods
  version: v2
  newestAsAny: [{user: eve}]
- group: ''
  resource: pods
  version: v3
  newestAsAny: []
- group: ''
  resource: pods
  version: v4
  limitAtZero: honour
`)
	want := []Caller{{User: "jane"}, {Group: "pollers"}, {Group: "system:serviceaccounts:inventory"}, {ServiceAccount: "ci/builder"}}
	expect.Same(t, want, c.For("", "v1", "pods").NewestAsAny)
	for _, tt := range []struct {
		version, resource string
		who               user.DefaultInfo
		want              bool
	}{
		{"v1", "pods", user.DefaultInfo{Name: "jane"}, true},
		{"v1", "pods", user.DefaultInfo{Name: "joe", Groups: []string{"people", "pollers"}}, true},
		{"v1", "pods", user.DefaultInfo{Name: "system:serviceaccount:ci:builder"}, true},
		{"v1", "pods", user.DefaultInfo{Name: "system:serviceaccount:inventory:x", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:inventory"}}, true},

		{"v1", "pods", user.DefaultInfo{}, false},
		{"v1", "pods", user.DefaultInfo{Name: "pollers", Groups: []string{"jane"}}, false},
		{"v1", "pods", user.DefaultInfo{Name: "Jane"}, false},
		{"v1", "pods", user.DefaultInfo{Name: "ci/builder", Groups: []string{""}}, false},
		{"v1", "pods", user.DefaultInfo{Name: "system:serviceaccount:ci:builder2"}, false},
		{"v1", "pods", user.DefaultInfo{Name: "system:serviceaccount:cib:uilder"}, false},
		{"v2", "pods", user.DefaultInfo{Name: "eve"}, true},
		{"v2", "pods", user.DefaultInfo{Name: "jane"}, false},
		{"v3", "pods", user.DefaultInfo{Name: "jane"}, false},
		{"v4", "pods", user.DefaultInfo{Name: "jane"}, true},
		{"v1", "nodes", user.DefaultInfo{Name: "jane"}, false},
	} {
		if got := c.For("", tt.version, tt.resource).GetsAny(&tt.who); got != tt.want {
			t.Errorf("%s of %s for %+v: %t", tt.resource, tt.version, tt.who, got)
		}
	}
	if !c.NamesCallers() || DefaultConfig().NamesCallers() {
		t.Errorf("callers are named: %t, by the default policy: %t", c.NamesCallers(), DefaultConfig().NamesCallers())
	}
	if (Rule{NewestAsAny: []Caller{{}}}).GetsAny(&user.DefaultInfo{}) {
		t.Error("a caller without a name is somebody")
	}
}

// TestWrongCallers: whom nobody can be, and everybody, is refused, with the place and what to
// write.
func TestWrongCallers(t *testing.T) {
	for entry, want := range map[string]string{
		"jane":                        `newestAsAny[0]: this is "jane": write fields here (user, group, serviceAccount)`,
		"{}":                          "newestAsAny[0]: this names 0 callers: write one of user, group and serviceAccount",
		"{name: jane}":                `newestAsAny[0]: unknown field "name": there are user, group, serviceAccount`,
		"{user: }":                    "newestAsAny[0].user: this is empty: write text here",
		"{user: 1000}":                "newestAsAny[0].user: this is the number 1000: write text here",
		"{user: ''}":                  `newestAsAny[0].user: "" is nobody`,
		"{user: '*'}":                 `newestAsAny[0].user: "*" is no pattern`,
		"{user: 'jane '}":             `newestAsAny[0].user: "jane " has spaces around it`,
		`{user: "ja\nne"}`:            `newestAsAny[0].user: "ja\nne" has spaces around it, or control characters`,
		"{user: jane, group: people}": "newestAsAny[0]: this names 2 callers",

		"{user: 'system:anonymous'}":                 "newestAsAny[0].user: \"system:anonymous\" is whoever has not said who they are",
		"{user: 'system:serviceaccount:ci:builder'}": `newestAsAny[0].user: "system:serviceaccount:ci:builder" is a service account: write "serviceAccount: ci/builder"`,
		"{user: 'system:serviceaccount:ci'}":         `newestAsAny[0].user: "system:serviceaccount:ci" is no service account's name`,

		"{group: ''}":                           `newestAsAny[0].group: "" is nobody`,
		"{group: '*'}":                          `newestAsAny[0].group: "*" is no pattern`,
		"{group: 'system:authenticated'}":       `newestAsAny[0].group: "system:authenticated" is every caller`,
		"{group: 'system:unauthenticated'}":     `newestAsAny[0].group: "system:unauthenticated" is whoever has not said`,
		"{group: 'system:serviceaccounts'}":     `newestAsAny[0].group: "system:serviceaccounts" is every service account, all controllers among them`,
		"{group: 'system:serviceaccounts:'}":    "is nobody's group, since no namespace is called so",
		"{group: 'system:serviceaccounts:a/b'}": "is nobody's group, since no namespace is called so",
		"{serviceAccount: builder}":             `newestAsAny[0].serviceAccount: "builder" has no namespace: write namespace/name`,
		"{serviceAccount: ci/}":                 `newestAsAny[0].serviceAccount: "ci/" is no service account's name`,
		"{serviceAccount: '*/builder'}":         `newestAsAny[0].serviceAccount: "*/builder" is no service account's name`,
		"{serviceAccount: CI/builder}":          `newestAsAny[0].serviceAccount: "CI/builder" is no service account's name`,
		"{serviceAccount: ci/builder/x}":        `newestAsAny[0].serviceAccount: "ci/builder/x" is no service account's name`,
		"{user: jane}, {user: jane}":            "newestAsAny[1]: user jane is in the list already",
	} {
		_, err := ParseConfig("p", []byte(head+"resources: [{group: '', resource: pods, newestAsAny: ["+entry+"]}]\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "p:3: resources[0].newestAsAny") || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\np:") {
			t.Errorf("%s: %v, which does not say %q alone", entry, err, want)
		}
	}
	for body, want := range map[string]string{
		"defaults: {newestAsAny: [{user: jane}]}\n":                                                      `p:3: defaults: unknown field "newestAsAny"`,
		"resources: [{group: apps, resource: '*', newestAsAny: [{user: jane}]}]\n":                       "p:3: resources[0].newestAsAny: is for one resource only",
		"resources: [{group: '', resource: events, newestAsAny: [{user: jane}]}]\n":                      "p:3: resources: the rule for events has newestAsAny, but the resource is never kept",
		"resources: [{group: '', resource: secrets, newestAsAny: [{user: jane}]}]\n":                     "p:3: resources: the rule for secrets has newestAsAny, but",
		"defaults: {cache: never}\nresources: [{group: '', resource: pods, newestAsAny: [{user: a}]}]\n": "p:4: resources: the rule for pods has newestAsAny, but",
		"resources: [{group: '', resource: pods, newestAsAny: []}]\n":                                    "p:3: resources: newestAsAny of the rule for pods is empty, and there is no rule for all versions that names callers",
		"resources: [{group: '', version: v1, resource: pods, newestAsAny: []}]\n":                       "p:3: resources: newestAsAny of the rule for pods.v1 is empty, and",
		"resources: [{group: '', resource: pods, newestAsAny: jane}]\n":                                  `p:3: resources[0].newestAsAny: this is "jane": write a list here`,
		"resources: [{group: '', resource: pods, consistentLists: yes-please}]\n":                        `p:3: resources[0].consistentLists: this is "yes-please": write true, false or always`,
	} {
		if _, err := ParseConfig("p", []byte(head+body)); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, which does not say %q alone", body, err, want)
		}
	}
}
