package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/proxy"
)

// parseEager parses the values of --eager. It returns an error for a collection that checkEager refuses, or that is named
// twice.
func parseEager(p *policy.Config, names []string) ([]proxy.EagerCollection, error) {
	var eager []proxy.EagerCollection
	for _, name := range names {
		collection, err := parseEagerName(name)
		if err != nil {
			return nil, err
		}
		if err := checkEager(p, name, collection); err != nil {
			return nil, err
		}
		if slices.Contains(eager, collection) {
			return nil, fmt.Errorf("%q is named twice", name)
		}
		eager = append(eager, collection)
	}
	return eager, nil
}

// parseEagerName parses "pods", a resource of the core group, or "deployments.v1.apps", as kubectl writes resources of
// other groups. A slash and a representation may follow; JSON is the default.
func parseEagerName(name string) (proxy.EagerCollection, error) {
	target, representation, hasRepresentation := strings.Cut(name, "/")
	collection := proxy.EagerCollection{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: target},
		Representation:       media.JSON,
	}
	if hasRepresentation {
		collection.Representation = media.Representation(representation)
	}
	if strings.Contains(target, ".") {
		parsed, _ := schema.ParseResourceArg(target) // the second result is for names without a version
		if parsed == nil || lacksVersion(*parsed) {
			return collection, fmt.Errorf("%q is not resource.version.group: write it like deployments.v1.apps, "+
				"or only the resource for the core group", name)
		}
		collection.GroupVersionResource = *parsed
	}
	return collection, nil
}

// lacksVersion reports whether the name that was parsed had no version, so that the first part of the group was parsed as one:
//
//	name                            version     group              lacks the version
//	deployments.v1.apps             v1          apps               no
//	ingresses.v1.networking.k8s.io  v1          networking.k8s.io  no
//	ingresses.networking.k8s.io     networking  k8s.io             yes: networking.k8s.io is a group
//	widgets.example.com             example     com                yes: no group is named com
func lacksVersion(gvr schema.GroupVersionResource) bool {
	isBuiltInGroup := scheme.Scheme.IsGroupRegistered
	canBeGroup := isBuiltInGroup(gvr.Group) || strings.Contains(gvr.Group, ".") // groups of custom resources have a dot
	versionBelongsToGroup := isBuiltInGroup(gvr.Version + "." + gvr.Group)
	return !canBeGroup || versionBelongsToGroup
}

// checkEager returns an error if the collection c cannot exist, or if the policy keeps it out of memory. name is the value of
// --eager.
func checkEager(p *policy.Config, name string, c proxy.EagerCollection) error {
	if c.Resource == "" {
		return fmt.Errorf("%q names no resource", name)
	}
	if plural := policy.PluralMeant(c.Group, c.Resource); plural != "" {
		return fmt.Errorf("%q is not a plural name: write %q", name, plural)
	}
	if !slices.Contains(media.All(), c.Representation) {
		return fmt.Errorf("%q has the unknown representation %q: choose among %v", name, c.Representation, media.All())
	}
	if p.RuleFor(c.Group, c.Resource).Cache == policy.CacheNever {
		return fmt.Errorf("%q is never kept in memory, says the policy (cache: never in --config, or built in): "+
			"leave it out of --eager, or change the policy", name)
	}
	return nil
}
