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

// readPolicyFlag reads the file that --config names; if the flag is not given, it is the default
// policy. An empty name is a variable that was not set, and not somebody's wish for the default.
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

// readPolicy reads a policy file, and refuses one that names a resource of Kubernetes' own wrongly: it
// would be for nothing.
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
			errs = append(errs, fmt.Errorf("%s: resource: %q is not a plural name: write %q", c.For(t.Group, t.Resource).Source, t.Resource, meant))
		}
	}
	return c, errors.Join(errs...)
}

// pluralMeant returns the plural name of a resource of Kubernetes' own that is named otherwise: "pods" for
// "pod". It is empty for all other names: a later version may have such a resource.
func pluralMeant(group, resource string) string {
	for _, version := range scheme.Scheme.PrioritizedVersionsForGroup(group) {
		for kind := range scheme.Scheme.KnownTypes(version) {
			plural, singular := meta.UnsafeGuessKindToResource(version.WithKind(kind))
			if name := strings.ToLower(resource); resource != plural.Resource && (name == singular.Resource || name == plural.Resource) {
				return plural.Resource
			}
		}
	}
	return ""
}
