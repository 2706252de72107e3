package policy

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate returns the errors in the document's values.
func (d *document) validate() field.ErrorList {
	var errs field.ErrorList
	if d.APIVersion != configAPIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), d.APIVersion, []string{configAPIVersion}))
	}
	if d.Kind != configKind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), d.Kind, []string{configKind}))
	}
	if d.Defaults != nil {
		errs = append(errs, d.Defaults.validate(field.NewPath("defaults"))...)
	}
	seen := map[schema.GroupResource]bool{}
	for i, rule := range d.Resources {
		path := field.NewPath("resources").Index(i)
		errs = append(errs, rule.validate(path)...)
		if seen[rule.target()] {
			errs = append(errs, field.Duplicate(path, rule.target().String()))
		}
		seen[rule.target()] = true
	}
	return errs
}

// coreVersionPattern matches the apiVersion of the core group, like "v1", which some write in place of the group.
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
	if w.Resource != AllResources && len(validation.IsDNS1035Label(w.Resource)) > 0 {
		errs = append(errs, field.Invalid(path.Child("resource"), w.Resource,
			`write the plural name in lower case, "*" for all of the group`))
	}
	if isEvents(w.target().Group, w.Resource) && w.Cache == CacheOnDemand {
		errs = append(errs, field.Invalid(path.Child("cache"), w.Cache, "events cannot be kept: their watches get no "+
			"bookmarks, so nobody could say how far they are known; write never, or leave it out"))
	}
	return append(errs, w.settings.validate(path)...)
}

// validate returns the errors in the settings at path.
func (s settings) validate(path *field.Path) field.ErrorList {
	errs := slices.Concat(
		oneOf(path.Child("cache"), s.Cache, CacheOnDemand, CacheNever),
		oneOf(path.Child("limitAtZero"), s.LimitAtZero, LimitIgnored, LimitHonoured),
		oneOf(path.Child("consistentLists"), s.consistentLists(), ConsistentNone, ConsistentLarge, ConsistentAll),
	)
	const minWindow, maxWindow = time.Second, time.Hour
	window := s.window() // 0, which is too short, if the text is not a duration
	if s.HistoryWindow != nil && (window < minWindow || window > maxWindow) {
		errs = append(errs, field.Invalid(path.Child("historyWindow"), s.HistoryWindow,
			fmt.Sprintf("write a duration with its unit, 2m30s, from %v to %v", minWindow, maxWindow)))
	}
	return errs
}

// oneOf returns an error if value is neither empty nor allowed.
func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}
