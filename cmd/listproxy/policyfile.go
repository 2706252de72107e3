package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/policy"
)

// newPolicyCommand returns the command for policy files. Without a subcommand it prints its help. It never contacts a cluster.
func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check a policy file",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a policy file",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := readPolicy(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", args[0])
			return err
		},
	})
	return cmd
}

// readPolicyFlag reads the policy file at path, the value of --config. Without a file it returns the default policy.
func readPolicyFlag(path string) (*policy.Config, error) {
	if path == "" {
		return policy.DefaultConfig(), nil
	}
	c, err := readPolicy(path)
	if err != nil {
		return nil, fmt.Errorf("--config:\n%w", err)
	}
	return c, nil
}

// readPolicy reads a policy file. It refuses a rule for a name like "pod" or "Pods", which no resource has.
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
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// pluralMeant returns the plural name of a built-in resource that is written in the singular or with capitals: "pods" for
// "pod" and "Pods". It returns "" for a correct plural, and for a name that is not built in: it may be a custom resource's.
func pluralMeant(group, resource string) string {
	lower := strings.ToLower(resource)
	for _, version := range scheme.Scheme.PrioritizedVersionsForGroup(group) {
		for kind := range scheme.Scheme.KnownTypes(version) {
			// Guessing is safe here: all built-in resources have regular plurals. KnownTypes also has kinds that are no resources,
			// like PodList, but nobody writes those.
			plural, singular := meta.UnsafeGuessKindToResource(version.WithKind(kind))
			isMeant := lower == singular.Resource || lower == plural.Resource
			if isMeant && resource != plural.Resource {
				return plural.Resource
			}
		}
	}
	return ""
}
