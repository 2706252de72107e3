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
	// maxSelectorLength bounds the text of each selector, in bytes. That also bounds the values in "key in (…)".
	maxSelectorLength = 4096
	// maxRequirements bounds the requirements of each selector, since every object is matched with every requirement.
	maxRequirements = 64
)

// The fields that field selectors of nearly every resource may name.
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// parseSelectors parses the selectors of req as the API server does, and sets Labels, Fields and Name. With a reason other
// than None, it does not change req.
func parseSelectors(req *Request) reason.Reason {
	parsed := *req
	var ok bool
	if parsed.Labels, ok = parseLabels(req.LabelSelector); !ok {
		return reason.NotCanonical
	}
	if parsed.Fields, ok = parseFields(req.FieldSelector); !ok {
		return reason.NotCanonical
	}
	if name, named := parsed.Fields.RequiresExactMatch(nameField); named {
		// No object can have such a name. The API server authorizes such a list without a name, and reads the whole
		// range.
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
	if !fitsReview(raw) {
		return nil, false
	}
	selector, err := labels.Parse(raw)
	// A selector that is not empty but selects everything (" ") is probably a mistake, and a review of it may have
	// another result than a review without a selector.
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
	if !fitsReview(raw) {
		return nil, false
	}
	selector, err := fields.ParseSelector(raw)
	// As for labels: "," and "=" select everything.
	if err != nil || selector.Empty() {
		return nil, false
	}
	return selector, len(selector.Requirements()) <= maxRequirements
}

// fitsReview reports whether a selector is short enough, and is UTF-8, so that a review can carry it.
func fitsReview(raw string) bool {
	return len(raw) <= maxSelectorLength && utf8.ValidString(raw)
}

// Single returns the namespace and name of the one object that the API server reads for the list. ok is false if the API
// server reads a range instead (k8s.io/apiserver, registry.Store.ListPredicate). namespaced says whether the resource has
// namespaces; if not, the namespace is empty.
//
// The API server reads a single object if the field selector has the object's name, and the path or the field selector
// has the namespace. For a continuation it always reads a range.
//
// The object is in the answer only if it matches both selectors. The answer has neither a continue token nor a remaining
// count, whatever the limit is.
func (r *Request) Single(namespaced bool) (namespace, name string, ok bool) {
	if r.Name == "" || r.Options.Continue != "" {
		return "", "", false
	}
	if !namespaced {
		return "", r.Name, r.Namespace == "" // the path of such a resource has no namespace
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

// CheckSelectors returns None if kube-apiserver's answer is what the selectors select of the objects of the request's scope,
// or of the one object of [Request.Single]. Otherwise it returns the reason to forward the request. namespaced says whether
// the resource has namespaces. Whether the resource has the fields of the selector is not checked here.
//
// kube-apiserver does otherwise in the cases below (k8s.io/apiserver, registry.Store.ListPredicate and storage/etcd3).
func (r *Request) CheckSelectors(namespaced bool, limitAtZero LimitAtZero) reason.Reason {
	// Resources without namespaces either refuse metadata.namespace or do not know its value. PodCertificateRequests refuse it
	// though they have namespaces.
	if r.selectsNamespace() && (!namespaced || r.refusesNamespace()) {
		return reason.NotCanonical
	}
	if r.Watch {
		return reason.None // the other cases are about pages: every event of a watch is matched with the selectors
	}
	o := r.Options
	atZero := o.ResourceVersion == "0"
	if _, _, single := r.Single(namespaced); single {
		// A revision with a limit is exact, but not if a single object is read: the newest object is the answer then.
		hasRevision := o.ResourceVersion != "" && !atZero
		if hasRevision && o.Limit > 0 && o.ResourceVersionMatch == "" {
			return reason.NotCanonical
		}
		return reason.None
	}
	// In a list over all namespaces, metadata.namespace=x makes x the scope of the first page, but not of later pages.
	limited := o.Limit > 0 && (!atZero || limitAtZero == LimitHonoured)
	paged := limited || o.Continue != ""
	if _, oneNamespace := r.Fields.RequiresExactMatch(namespaceField); oneNamespace && r.Namespace == "" && paged {
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
// namespaces, because the resource's conversion of field labels does not accept that field (kubernetes, pkg/apis).
func (r *Request) refusesNamespace() bool {
	return r.Group == "certificates.k8s.io" && r.Resource == "podcertificaterequests"
}
