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

const (
	// maxSelectorLength bounds the text of each selector, in bytes, and with it the values in a requirement on a label.
	maxSelectorLength = 4096
	// maxRequirements bounds the requirements of each selector: each is checked for every object.
	maxRequirements = 64
)

// The fields that field selectors of nearly every resource may name.
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
	return reason.None
}

// parseLabels parses a label selector. If ok is false, the list must be forwarded.
func parseLabels(raw string) (selector labels.Selector, ok bool) {
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

// parseFields parses a field selector. If ok is false, the list must be forwarded.
func parseFields(raw string) (selector fields.Selector, ok bool) {
	if raw == "" {
		return fields.Everything(), true
	}
	if !isReasonable(raw) {
		return nil, false
	}
	selector, err := fields.ParseSelector(raw)
	// As for labels: "," and "=" are given, but select everything.
	if err != nil || selector.Empty() {
		return nil, false
	}
	return selector, len(selector.Requirements()) <= maxRequirements
}

// isReasonable reports whether a selector is not too long, and is text that a review can carry.
func isReasonable(raw string) bool {
	return len(raw) <= maxSelectorLength && utf8.ValidString(raw)
}

// Single returns the namespace (empty if the resource has none) and name of the one object that the API server reads
// for the list. ok is false if it reads a range instead (k8s.io/apiserver, registry.Store.ListPredicate). It reads
// a single object if the field selector demands its exact name, and the path or the field selector its namespace. A
// continuation always reads a range.
//
// The object must match both selectors all the same. The answer has one item or none, and neither a continue token nor a
// remaining count, whatever the limit is. namespaced says whether the resource has namespaces.
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
		// The API server ignores a value that cannot be a namespace's name.
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return "", "", false
		}
	}
	return namespace, r.Name, true
}

// CheckSelectors returns None if kube-apiserver treats the selectors in the usual way: it reads the objects of the
// request's scope, one or all (see [Request.Single]), and answers with those that match. Otherwise it returns the reason
// to forward the request. Whether the resource has the fields of the selector is not checked here.
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
// namespaced says whether the resource has namespaces, atZero what a limit at resourceVersion=0 means.
func (r *Request) CheckSelectors(namespaced bool, atZero LimitAtZero) reason.Reason {
	if r.selectsNamespace() && (!namespaced || r.refusesNamespace()) {
		return reason.NotCanonical
	}
	if r.Watch {
		return reason.None // each event of a watch is matched with the selectors, in every case
	}
	o := r.Options
	atAny := o.ResourceVersion == "0"
	// At resourceVersion=0, a limit is ignored or makes a page, but never makes the revision exact.
	limited := o.Limit > 0 && (!atAny || atZero == LimitHonoured)
	if _, _, single := r.Single(namespaced); single {
		if limited && !atAny && o.ResourceVersion != "" && o.ResourceVersionMatch == "" {
			return reason.NotCanonical
		}
		return reason.None
	}
	if _, exact := r.Fields.RequiresExactMatch(namespaceField); exact && r.Namespace == "" && (limited || o.Continue != "") {
		return reason.NotCanonical
	}
	return reason.None
}

// selectsNamespace reports whether the field selector has a requirement on the namespace.
func (r *Request) selectsNamespace() bool {
	return slices.ContainsFunc(r.Fields.Requirements(), func(q fields.Requirement) bool { return q.Field == namespaceField })
}

// refusesNamespace reports whether kube-apiserver refuses metadata.namespace in a field selector though the resource has
// namespaces: its conversion of field labels does not let that field through (kubernetes, pkg/apis).
func (r *Request) refusesNamespace() bool {
	return r.Group == "certificates.k8s.io" && r.Resource == "podcertificaterequests"
}
