package policy

import (
	"slices"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listproxy/listproxy/policy/reason"
)

// The bounds of each selector, since every object is matched with every requirement and with every value in "key in (…)".
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
// does not change req, if the request must be forwarded.
func parseSelectors(req *Request) bool {
	labelSelector, labelsOK := parseLabels(req.LabelSelector)
	fieldSelector, fieldsOK := parseFields(req.FieldSelector)
	if !labelsOK || !fieldsOK {
		return false
	}
	name, isNamed := fieldSelector.RequiresExactMatch(nameField)
	if isNamed && (name == "" || len(content.IsPathSegmentName(name)) > 0) {
		return false // no object has such a name: the API server authorizes the list without a name, and reads the whole range
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
	if !fitsReview(raw) {
		return nil, false
	}
	selector, err := labels.Parse(raw)
	// A selector like " ", which selects everything, is probably a mistake. A review with it may have another result than a
	// review without a selector.
	if err != nil || selector.Empty() {
		return nil, false
	}
	requirements, _ := selector.Requirements()
	return selector, len(requirements) <= maxRequirements
}

// parseFields parses a field selector. If ok is false, the request must be forwarded.
func parseFields(raw string) (selector fields.Selector, ok bool) {
	if raw == "" {
		return fields.Everything(), true
	}
	if !fitsReview(raw) {
		return nil, false
	}
	selector, err := fields.ParseSelector(raw)
	if err != nil || selector.Empty() { // as for labels: "," and "=" select everything
		return nil, false
	}
	return selector, len(selector.Requirements()) <= maxRequirements
}

// fitsReview reports whether a review can carry the selector: it is short enough, and UTF-8.
func fitsReview(raw string) bool {
	return len(raw) <= maxSelectorLength && utf8.ValidString(raw)
}

// Single returns the namespace and name of the object if the API server reads a single object for the list. ok is false if
// the API server reads a range (k8s.io/apiserver, registry.Store.ListPredicate). namespaced says whether the resource has
// namespaces.
//
// The API server reads a single object if the field selector has the name, and the path or the field selector has the
// namespace, if the resource has any. For a continuation it always reads a range.
//
// The object is in the answer only if it matches both selectors. The answer has neither a continue token nor a remaining
// count, whatever the limit is.
func (r *Request) Single(namespaced bool) (namespace, name string, ok bool) {
	if r.Name == "" || r.Options.Continue != "" {
		return "", "", false
	}
	if !namespaced {
		return "", r.Name, r.Namespace == "" // a path with a namespace does not fit such a resource
	}
	namespace = r.Namespace
	if namespace == "" {
		namespace, _ = r.Fields.RequiresExactMatch(namespaceField)
		// The API server ignores a namespace in the field selector that is not a valid name.
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return "", "", false
		}
	}
	return namespace, r.Name, true
}

// checkSelectors returns None if kube-apiserver answers the request with exactly the objects in its scope that match its
// selectors (k8s.io/apiserver, registry.Store.ListPredicate and storage/etcd3), and the reason to forward it if not.
// namespaced says whether the resource has namespaces. checkSelectors does not know the resource's fields.
func (r *Request) checkSelectors(namespaced bool, limitAtZero LimitAtZero) reason.Reason {
	// Resources without namespaces either refuse metadata.namespace or do not know its value.
	if r.selectsNamespace() && (!namespaced || r.refusesNamespace()) {
		return reason.NotCanonical
	}
	if r.Watch {
		return reason.None // the rest is about pages
	}
	o := r.Options
	isAtZero := o.ResourceVersion == "0"
	isLimited := o.Limit > 0 && (!isAtZero || limitAtZero == LimitHonoured)
	if _, _, isSingle := r.Single(namespaced); isSingle {
		// For a range, a revision with a limit is exact. For a single object, the API server returns the newest state.
		if isLimited && !isAtZero && o.ResourceVersion != "" && o.ResourceVersionMatch == "" {
			return reason.NotCanonical
		}
		return reason.None
	}
	// In a list over all namespaces, metadata.namespace=x makes x the scope of the first page, but not of later pages.
	_, selectsOneNamespace := r.Fields.RequiresExactMatch(namespaceField)
	isPaged := isLimited || o.Continue != ""
	if r.Namespace == "" && selectsOneNamespace && isPaged {
		return reason.NotCanonical
	}
	return reason.None
}

// selectsNamespace reports whether the field selector has a requirement on the namespace.
func (r *Request) selectsNamespace() bool {
	return slices.ContainsFunc(r.Fields.Requirements(), func(requirement fields.Requirement) bool {
		return requirement.Field == namespaceField
	})
}

// refusesNamespace reports whether kube-apiserver refuses metadata.namespace in a field selector though the resource has
// namespaces: the resource's conversion of field labels does not accept that field (kubernetes, pkg/apis).
func (r *Request) refusesNamespace() bool {
	return r.Group == "certificates.k8s.io" && r.Resource == "podcertificaterequests"
}
