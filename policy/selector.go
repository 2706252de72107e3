package policy

import (
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// The bounds of each selector. An object is matched with every requirement, and with every value in "key in (…)".
const (
	maxSelectorLength = 4096 // in bytes
	maxRequirements   = 64
)

// The fields that field selectors of nearly every resource may name.
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// parseSelectors parses the selectors of req as the API server does, and sets Labels, Fields and Name. It returns false, and
// changes nothing, if the request must be forwarded.
func parseSelectors(req *Request) bool {
	labelSelector, labelsOK := parseLabels(req.LabelSelector)
	fieldSelector, fieldsOK := parseFields(req.FieldSelector)
	if !labelsOK || !fieldsOK {
		return false
	}
	name, isNamed := fieldSelector.RequiresExactMatch(nameField)
	if isNamed && (name == "" || len(content.IsPathSegmentName(name)) > 0) {
		// No object can have such a name. The API server authorizes the list as one without a name, and reads the whole range.
		return false
	}
	req.Labels = labelSelector
	req.Fields = fieldSelector
	req.Name = name
	return true
}

// parseLabels parses a label selector. If ok is false, the request must be forwarded.
func parseLabels(raw string) (selector labels.Selector, ok bool) {
	if raw == "" {
		return labels.Everything(), true
	}
	if !fitsAccessReview(raw) {
		return nil, false
	}
	selector, err := labels.Parse(raw)
	// A selector like " " selects everything, probably by mistake. An authorizer may not treat it like a list without a
	// selector.
	if err != nil || selector.Empty() {
		return nil, false
	}
	requirements, _ := selector.Requirements() // the bool is true for every parsed selector
	return selector, len(requirements) <= maxRequirements
}

// parseFields parses a field selector. If ok is false, the request must be forwarded.
func parseFields(raw string) (selector fields.Selector, ok bool) {
	if raw == "" {
		return fields.Everything(), true
	}
	if !fitsAccessReview(raw) {
		return nil, false
	}
	selector, err := fields.ParseSelector(raw)
	if err != nil || selector.Empty() { // "," and "=" select everything, as " " does in parseLabels
		return nil, false
	}
	return selector, len(selector.Requirements()) <= maxRequirements
}

// fitsAccessReview reports whether a selector can stand in a SelfSubjectAccessReview: it is short enough, and UTF-8.
func fitsAccessReview(raw string) bool {
	return len(raw) <= maxSelectorLength && utf8.ValidString(raw)
}
