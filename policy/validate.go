package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// validate returns the errors in the file's values.
func (f *File) validate() field.ErrorList {
	var errs field.ErrorList
	if f.APIVersion != configAPIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), f.APIVersion, []string{configAPIVersion}))
	}
	if f.Kind != configKind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), f.Kind, []string{configKind}))
	}
	errs = append(errs, f.Defaults.validate(field.NewPath("defaults"))...)
	seen := map[schema.GroupResource]bool{}
	for i, rule := range f.Resources {
		path := field.NewPath("resources").Index(i)
		errs = append(errs, rule.validate(path)...)
		if seen[rule.target()] {
			errs = append(errs, field.Duplicate(path, rule.target().String()))
		}
		seen[rule.target()] = true
	}
	return errs
}

// coreVersionPattern matches an apiVersion of the core group, like "v1", which some users write instead of the group.
var coreVersionPattern = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// validate returns the errors in the values of the rule at path.
func (w writtenRule) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	group := path.Child("group")
	switch {
	case w.Group == nil:
		errs = append(errs, field.Required(group, `the API group without its version, "" for the core group`))
	case *w.Group == "core", coreVersionPattern.MatchString(*w.Group):
		errs = append(errs, field.Invalid(group, *w.Group, `the core group has an empty name: write ""`))
	case *w.Group != "" && len(validation.IsDNS1123Subdomain(*w.Group)) > 0:
		errs = append(errs, field.Invalid(group, *w.Group, `write the API group without its version, "" for the core group`))
	}
	resource := path.Child("resource")
	if plural := PluralMeant(w.target().Group, w.Resource); plural != "" {
		errs = append(errs, field.Invalid(resource, w.Resource, fmt.Sprintf("not a plural name: write %q", plural)))
	} else if w.Resource != AllResources && len(validation.IsDNS1035Label(w.Resource)) > 0 {
		errs = append(errs, field.Invalid(resource, w.Resource,
			`write the plural name in lower case, "*" for all of the group`))
	}
	if isEvents(w.target().Group, w.Resource) && w.Cache == CacheOnDemand {
		errs = append(errs, field.Invalid(path.Child("cache"), w.Cache, "events cannot be kept: their watches get no "+
			"bookmarks, so nobody could say how far they are known; write never, or leave it out"))
	}
	return append(errs, w.settings.validate(path)...)
}

// PluralMeant returns the plural name of a built-in resource that is written in the singular or with capitals: "pods" for
// "pod" and "Pods". It returns "" for a correct plural, and for a name that no built-in resource has.
func PluralMeant(group, resource string) string {
	lower := strings.ToLower(resource)
	for _, version := range scheme.Scheme.PrioritizedVersionsForGroup(group) {
		for kind := range scheme.Scheme.KnownTypes(version) {
			// All built-in resources have regular plurals, so the guess from the kind is right. KnownTypes also has kinds that
			// are not resources, like PodList, but nobody writes those in a policy.
			plural, singular := meta.UnsafeGuessKindToResource(version.WithKind(kind))
			isMeant := lower == singular.Resource || lower == plural.Resource
			if isMeant && resource != plural.Resource {
				return plural.Resource
			}
		}
	}
	return ""
}

// validate returns the errors in the settings at path.
func (s settings) validate(path *field.Path) field.ErrorList {
	errs := slices.Concat(
		oneOf(path.Child("cache"), s.Cache, CacheOnDemand, CacheNever),
		oneOf(path.Child("limitAtZero"), s.LimitAtZero, LimitIgnored, LimitHonoured),
		oneOf(path.Child("consistentLists"), s.consistentLists(), ConsistentNone, ConsistentLarge, ConsistentAll),
	)
	const minWindow, maxWindow = time.Second, time.Hour
	window := s.window() // 0 if it is not a duration, which is too short
	if s.HistoryWindow != nil && (window < minWindow || window > maxWindow) {
		errs = append(errs, field.Invalid(path.Child("historyWindow"), s.HistoryWindow,
			fmt.Sprintf("write a duration with its unit, 2m30s, from %v to %v", minWindow, maxWindow)))
	}
	return errs
}

// oneOf returns an error unless value is allowed or empty.
func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}
