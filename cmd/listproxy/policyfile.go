package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/policy"
)

// readPolicyFlag reads the policy file that --config names, or returns the default policy if the flag is not given.
// An empty name is an error: most likely a variable was not set, and nobody wants the default.
func readPolicyFlag(fs *pflag.FlagSet, path string) (*policy.Config, error) {
	switch {
	case !fs.Changed("config"):
		return policy.DefaultConfig(), nil
	case path == "":
		return nil, errors.New("--config is empty: name the policy file, or leave the flag out")
	}
	c, err := readPolicy(path)
	if err != nil {
		return nil, fmt.Errorf("--config:\n%w", err)
	}
	return c, nil
}

// readPolicy reads a policy file. It refuses a name like "pod", with which the rule would have no effect.
func readPolicy(path string) (*policy.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := policy.ParseConfig(path, data)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, t := range c.Targets() {
		if meant := pluralMeant(t.Group, t.Resource); meant != "" {
			errs = append(errs, fmt.Errorf("%s: resource: %q is not a plural name: write %q",
				c.RuleFor(t.Group, t.Resource).Source, t.Resource, meant))
		}
	}
	return c, errors.Join(errs...)
}

// pluralMeant returns the plural name of a built-in resource for a singular or capitalized one: "pods" for "pod" and
// "Pods". It returns "" for all other names, since a later version of Kubernetes may have such a resource.
func pluralMeant(group, resource string) string {
	name := strings.ToLower(resource)
	for _, version := range scheme.Scheme.PrioritizedVersionsForGroup(group) {
		for kind := range scheme.Scheme.KnownTypes(version) {
			plural, singular := meta.UnsafeGuessKindToResource(version.WithKind(kind))
			if resource != plural.Resource && (name == singular.Resource || name == plural.Resource) {
				return plural.Resource
			}
		}
	}
	return ""
}
