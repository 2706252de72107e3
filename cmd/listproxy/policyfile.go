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

// readPolicyFlag reads the policy file at path, the value of --config in fs. It returns the default policy if the flag
// is not given. An empty value is an error: most likely a variable was not set, and the default is not wanted.
func readPolicyFlag(fs *pflag.FlagSet, path string) (*policy.Config, error) {
	if !fs.Changed("config") {
		return policy.DefaultConfig(), nil
	}
	if path == "" {
		return nil, errors.New("--config is empty: name the policy file, or leave the flag out")
	}
	c, err := readPolicy(path)
	if err != nil {
		return nil, fmt.Errorf("--config:\n%w", err)
	}
	return c, nil
}

// readPolicy reads a policy file. It refuses a rule for a name like "pod", since the rule would have no effect.
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
	for _, target := range c.Targets() {
		if plural := pluralMeant(target.Group, target.Resource); plural != "" {
			errs = append(errs, fmt.Errorf("%s: resource: %q is not a plural name: write %q",
				c.RuleFor(target.Group, target.Resource).Source, target.Resource, plural))
		}
	}
	return c, errors.Join(errs...)
}

// pluralMeant returns the plural name of a built-in resource that is given in the singular or with capitals: "pods" for
// "pod" and "Pods". It returns "" for all other names, since a later version of Kubernetes may have such a resource.
func pluralMeant(group, resource string) string {
	name := strings.ToLower(resource)
	for _, version := range scheme.Scheme.PrioritizedVersionsForGroup(group) {
		for kind := range scheme.Scheme.KnownTypes(version) {
			// Unsafe for custom resources only: the plurals of built-in resources are regular.
			plural, singular := meta.UnsafeGuessKindToResource(version.WithKind(kind))
			isMeant := name == singular.Resource || name == plural.Resource
			if isMeant && resource != plural.Resource {
				return plural.Resource
			}
		}
	}
	return ""
}
