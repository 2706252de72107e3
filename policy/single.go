package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listproxy/listproxy/policy/reason"
)

// Single reports whether the API server reads a single object for the list, not a range of objects, because its field selector
// names one (k8s.io/apiserver, registry.Store.ListPredicate). If so, it returns the object's namespace and name. namespaced
// says whether the resource has namespaces.
//
//	path                          field selector                        reads
//	/api/v1/namespaces/a/pods     metadata.name=x                       a/x
//	/api/v1/pods                  metadata.name=x,metadata.namespace=a  a/x
//	/api/v1/pods                  metadata.name=x                       a range
//	/api/v1/nodes                 metadata.name=x                       x
//	any, with a continue token    any                                   a range
//
// The object is in the answer only if it matches the label selector and the field selector. The answer has neither a continue
// token nor a remaining count, whatever the limit is.
func (r *Request) Single(namespaced bool) (namespace, name string, isSingle bool) {
	isUnknownPath := r.Namespace != "" && !namespaced
	isContinued := r.Options.Continue != ""
	if r.Name == "" || isContinued || isUnknownPath {
		return "", "", false
	}
	if r.Namespace != "" || !namespaced {
		return r.Namespace, r.Name, true
	}
	namespace, _ = r.Fields.RequiresExactMatch(namespaceField)
	if len(validation.IsDNS1123Label(namespace)) > 0 { // The API server ignores a namespace that is not a valid name.
		return "", "", false
	}
	return namespace, r.Name, true
}

// checkSelectors returns NotCanonical if kube-apiserver treats the request's field selector in a special way, so that an answer
// from memory would differ (k8s.io/apiserver, registry.Store.ListPredicate and storage/etcd3). Otherwise it returns None.
// namespaced says whether the resource has namespaces. The special cases are:
//
//   - The field selector names metadata.namespace, but the resource has no namespaces, or kube-apiserver refuses that field of
//     the resource. (Of some resources without namespaces, kube-apiserver accepts the field, and selects nothing.)
//   - The list is of a single object, and has a limit and a revision, but no resourceVersionMatch: limit=1&resourceVersion=5.
//     In other lists, this means "exactly at revision 5". But kube-apiserver reads a single object in its newest state.
//   - The list is of objects in all namespaces, has pages, and selects metadata.namespace=x. kube-apiserver reads the first
//     page from the namespace x, and later pages from all namespaces.
//
// checkSelectors does not check other fields, since it does not know which fields the resource has.
func (r *Request) checkSelectors(namespaced bool, limitAtZero LimitAtZero) reason.Reason {
	acceptsNamespace := namespaced && !r.refusesNamespace()
	if r.selectsNamespace() && !acceptsNamespace {
		return reason.NotCanonical
	}
	if r.Watch {
		return reason.None // the rest is about lists
	}
	o := r.Options
	isAtZero := o.ResourceVersion == "0"
	isAtRevision := o.ResourceVersion != "" && !isAtZero
	limitMeansExact := isAtRevision && o.ResourceVersionMatch == "" && o.Limit > 0 // see decideList
	ignoresLimit := isAtZero && limitAtZero != LimitHonoured
	isPaged := o.Continue != "" || (o.Limit > 0 && !ignoresLimit)
	_, selectsOneNamespace := r.Fields.RequiresExactMatch(namespaceField)
	pagesDiffer := isPaged && r.Namespace == "" && selectsOneNamespace
	_, _, isSingle := r.Single(namespaced)
	if (isSingle && limitMeansExact) || (!isSingle && pagesDiffer) {
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

// refusesNamespace reports whether kube-apiserver refuses metadata.namespace in a field selector although the resource has
// namespaces: the resource's conversion of field labels does not accept the field (kubernetes, pkg/apis).
func (r *Request) refusesNamespace() bool {
	return r.Group == "certificates.k8s.io" && r.Resource == "podcertificaterequests"
}
