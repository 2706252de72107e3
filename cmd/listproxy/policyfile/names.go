package policyfile

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/policy"
)

// builtinNames are the resources of an API group that Kubernetes has by itself; none of a group
// that it does not have.
func builtinNames(group string) []string {
	var names []string
	for _, version := range scheme.Scheme.PrioritizedVersionsForGroup(group) {
		kinds := scheme.Scheme.KnownTypes(version)
		for kind := range kinds {
			if _, listed := kinds[kind+"List"]; listed {
				plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
				names = append(names, plural.Resource)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Meant returns the resource that was probably meant by a name that Kubernetes does not have:
// "pods" for "pod". It is empty for resources that Kubernetes has, for other API groups, and if
// nothing is similar: a later version of Kubernetes may have such a resource.
func Meant(group, resource string) string {
	names := builtinNames(group)
	if resource == policy.AllResources || slices.Contains(names, resource) {
		return ""
	}
	return policy.Similar(resource, names)
}

// checkNames refuses a policy that names a resource of Kubernetes' own wrongly: it would never be
// loaded.
func checkNames(c *policy.Config) error {
	var errs []error
	for _, t := range c.RuleTargets() {
		if meant := Meant(t.Group, t.Resource); meant != "" {
			errs = append(errs, fmt.Errorf("%s: resource: Kubernetes has no %q here: did you mean %q? Resources have their plural names",
				c.Rule(t).Source, t.Resource, meant))
		}
	}
	return errors.Join(errs...)
}
