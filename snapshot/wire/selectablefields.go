package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Field is a field of a resource that a field selector may name, with the path to it in an object.
type Field struct {
	// Name is the field as a selector writes it: "spec.nodeName".
	Name string
	// JSON is the path to the value in JSON. The value is a string, a boolean or a number.
	JSON []string
	// Protobuf is the path to the value in protobuf: the numbers of the fields in the object, without the wrapper. It is nil
	// for custom resources, which have no protobuf.
	Protobuf []protowire.Number
	// Indexed reports whether kube-apiserver has an index by the field. If so, a collection has one, too (see
	// index.Query.EndsWithIndex). An indexed field is the first in the fields of its resource.
	Indexed bool
	// Zero is the value for selectors if an object lacks the field. It also shows the type in protobuf: "" for a string,
	// "false" for a boolean, "0" for an integer.
	Zero string
}

// BuiltinFields returns the selectable fields that kube-apiserver 1.36 has for a built-in type, in addition to metadata.name
// and metadata.namespace. (Nodes, namespaces, resourceslices and all types of certificates.k8s.io refuse metadata.namespace.)
// The caller may change the slice.
//
// Each field meets three conditions:
//
//   - kube-apiserver accepts the field in a selector of the type's version (kubernetes, pkg/apis, AddFieldLabelConversionFunc).
//     status.replicas of replicasets and spec.leaseName of leasecandidates do not meet this condition.
//   - kube-apiserver gives the field a value (pkg/registry, the GetAttrs of the type). status.podIPs of pods does not meet this
//     condition.
//   - kube-apiserver always sends the value in the object.
//
// Events are never kept, so they have no fields here. Another version of kube-apiserver may have other fields.
func BuiltinFields(gvr schema.GroupVersionResource) []Field {
	switch gvr.Version + " " + gvr.GroupResource().String() { // "version resource.group"
	case "v1 pods":
		return []Field{
			builtin("spec.nodeName", 2, 10).withIndex(),
			// spec.host is the name from before Kubernetes 1.0. kube-apiserver's index serves it, too.
			builtin("spec.nodeName", 2, 10).withName("spec.host"),
			builtin("spec.restartPolicy", 2, 3),
			builtin("spec.schedulerName", 2, 19),
			builtin("spec.serviceAccountName", 2, 8),
			// hostNetwork is a field of PodSpec. (In kube-apiserver's internal type, it is in the security context.)
			builtin("spec.hostNetwork", 2, 11).withZero("false"),
			builtin("status.phase", 3, 1),
			// kube-apiserver selects by the first of podIPs, which is also the value of podIP.
			builtin("status.podIP", 3, 6),
			builtin("status.nominatedNodeName", 3, 11),
		}
	case "v1 nodes":
		return []Field{builtin("spec.unschedulable", 2, 4).withZero("false")}
	case "v1 namespaces":
		return []Field{builtin("status.phase", 3, 1)}
	case "v1 secrets":
		return []Field{builtin("type", 3)}
	case "v1 services":
		return []Field{builtin("spec.clusterIP", 2, 3), builtin("spec.type", 2, 4)}
	case "v1 replicationcontrollers":
		return []Field{builtin("status.replicas", 3, 1).withZero("0")}
	case "v1 jobs.batch":
		return []Field{builtin("status.succeeded", 3, 5).withName("status.successful").withZero("0")}
	case "v1 certificatesigningrequests.certificates.k8s.io":
		return []Field{builtin("spec.signerName", 2, 7)}
	case "v1beta1 clustertrustbundles.certificates.k8s.io", "v1alpha1 clustertrustbundles.certificates.k8s.io":
		return []Field{builtin("spec.signerName", 2, 1)}
	case "v1beta1 podcertificaterequests.certificates.k8s.io":
		return []Field{builtin("spec.signerName", 2, 1), builtin("spec.podName", 2, 2), builtin("spec.nodeName", 2, 6)}
	case "v1 resourceslices.resource.k8s.io", "v1beta2 resourceslices.resource.k8s.io", "v1beta1 resourceslices.resource.k8s.io":
		return []Field{builtin("spec.nodeName", 2, 3).withIndex(), builtin("spec.driver", 2, 1)}
	}
	return nil
}

// builtin returns a string field whose name is its path in JSON. protobuf is the path in protobuf. For spec.nodeName of pods it
// is 2, 10: field 2 of Pod is spec, and field 10 of PodSpec is nodeName.
func builtin(name string, protobuf ...protowire.Number) Field {
	return Field{Name: name, JSON: strings.Split(name, "."), Protobuf: protobuf}
}

// withName returns the field with a name that is not its path.
func (f Field) withName(name string) Field {
	f.Name = name
	return f
}

// withZero returns the field with a zero value, for a boolean or an integer.
func (f Field) withZero(zero string) Field {
	f.Zero = zero
	return f
}

// withIndex returns the field with Indexed set.
func (f Field) withIndex() Field {
	f.Indexed = true
	return f
}
