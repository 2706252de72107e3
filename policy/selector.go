package policy

import (
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listproxy/listproxy/policy/reason"
)

const (
	// maxSelectorLength bounds each selector as it is written, in bytes, and with it the
	// values that a set of labels may have.
	maxSelectorLength = 4096
	// maxRequirements bounds the requirements of each selector, every one of which is
	// looked at for every object.
	maxRequirements = 64
)

// The fields that every resource has, or nearly every one.
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// parseSelectors parses the selectors of req as the API server does, and sets Labels,
// Fields and Name. If it returns a Reason, req is not changed.
func parseSelectors(req *Request) reason.Reason {
	parsed := *req
	var ok bool
	if parsed.Labels, ok = parseLabels(req.LabelSelector); !ok {
		return reason.NotCanonical
	}
	if parsed.Fields, ok = parseFields(req.FieldSelector); !ok {
		return reason.NotCanonical
	}
	if name, ok := parsed.Fields.RequiresExactMatch(nameField); ok {
		// An object with such a name cannot exist, but the API server then authorizes the list without a
		// name, and reads the whole range for nothing.
		if name == "" || len(content.IsPathSegmentName(name)) > 0 {
			return reason.NotCanonical
		}
		parsed.Name = name
	}
	*req = parsed
	return ""
}

// parseLabels parses a label selector; not ok means that the list must be forwarded.
func parseLabels(raw string) (labels.Selector, bool) {
	if raw == "" {
		return labels.Everything(), true
	}
	if !isReasonable(raw) {
		return nil, false
	}
	selector, err := labels.Parse(raw)
	// A selector that is given but selects everything (" ") is probably a mistake, and a review of it
	// might have another result.
	if err != nil || selector.Empty() {
		return nil, false
	}
	requirements, _ := selector.Requirements()
	return selector, len(requirements) <= maxRequirements
}

// parseFields parses a field selector; not ok means that the list must be forwarded.
func parseFields(raw string) (fields.Selector, bool) {
	if raw == "" {
		return fields.Everything(), true
	}
	if !isReasonable(raw) {
		return nil, false
	}
	selector, err := fields.ParseSelector(raw)
	// As with labels; "," and "=" are such selectors.
	if err != nil || selector.Empty() {
		return nil, false
	}
	return selector, len(selector.Requirements()) <= maxRequirements
}

// isReasonable tells whether a selector is short, and text that a review can carry.
func isReasonable(raw string) bool {
	return len(raw) <= maxSelectorLength && utf8.ValidString(raw)
}

// Single reports whether the API server reads a single key for the list, of the object
// with this namespace (empty if the resource has none) and name, instead of a range
// (k8s.io/apiserver, registry.Store.ListPredicate). The object has to match both
// selectors all the same. The answer has one item or none, and then neither a continue
// token nor a count of what remains, whatever the limit.
//
// namespaced tells whether the resource has namespaces. The name has to be exact, and
// the namespace either in the path or exact too. A continuation reads a range.
func (r *Request) Single(namespaced bool) (namespace, name string, ok bool) {
	if r.Name == "" || r.Options.Continue != "" {
		return "", "", false
	}
	if !namespaced {
		return "", r.Name, r.Namespace == ""
	}
	namespace = r.Namespace
	if namespace == "" {
		namespace, _ = r.Fields.RequiresExactMatch(namespaceField)
		// What is no name of a namespace is not taken for one.
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return "", "", false
		}
	}
	return namespace, r.Name, true
}

// CheckSelectors reports whether kube-apiserver treats the selectors in the usual way, for a resource
// with or without namespaces. The usual way: it reads the objects of the request's scope, one or all
// (see [Request.Single]), and answers with those that match. In all other cases the request must be
// forwarded.
// CheckSelectors does not check whether the resource has the other fields in the selector.
//
// The unusual cases (k8s.io/apiserver, registry.Store.ListPredicate and storage/etcd3):
//
//   - metadata.namespace=x over all namespaces makes the namespace the scope of the
//     first page, but not of the ones after it. So do not page.
//   - Resources without namespaces either refuse metadata.namespace or do not know its
//     value; PodCertificateRequests refuse it though they have namespaces.
//   - A limit makes a revision exact, but not for a single key, which is then read as
//     it is now.
//
// atZero is what a limit at resourceVersion=0 means.
func (r *Request) CheckSelectors(namespaced bool, atZero LimitAtZero) reason.Reason {
	if r.selectsNamespace() && (!namespaced || r.refusesNamespace()) {
		return reason.NotCanonical
	}
	if r.Watch {
		return "" // its events are all held against the selectors
	}
	o := r.Options
	atAny := o.ResourceVersion == "0"
	// At resourceVersion=0, a limit is ignored or makes a page, but never makes the revision exact.
	limited := o.Limit > 0 && (!atAny || atZero == LimitHonoured)
	if _, _, single := r.Single(namespaced); single {
		if limited && !atAny && o.ResourceVersion != "" && o.ResourceVersionMatch == "" {
			return reason.NotCanonical
		}
		return ""
	}
	if _, exact := r.Fields.RequiresExactMatch(namespaceField); exact && r.Namespace == "" && (limited || o.Continue != "") {
		return reason.NotCanonical
	}
	return ""
}

// selectsNamespace tells whether the field selector says anything about the namespace.
func (r *Request) selectsNamespace() bool {
	for _, requirement := range r.Fields.Requirements() {
		if requirement.Field == namespaceField {
			return true
		}
	}
	return false
}

// refusesNamespace names the resources with namespaces whose conversion of field labels
// does not let metadata.namespace through (kubernetes, pkg/apis).
func (r *Request) refusesNamespace() bool {
	return r.Group == "certificates.k8s.io" && r.Resource == "podcertificaterequests"
}
