package wire

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Field is a field of a resource that a field selector may name, and where an
// object holds it.
type Field struct {
	// Name is the field as a selector writes it: "spec.nodeName".
	Name string
	// JSON is the path of its value in the JSON form, a string, a number or a boolean.
	JSON []string
	// Protobuf is the path of field numbers in the protobuf form (of the object, without the
	// envelope); nil if the object has no such form. The value is a string if Zero is "", else
	// a varint, to be read as Zero is: an int32 or a boolean.
	Protobuf []protowire.Number
	// Indexed is true if kube-apiserver has an index of it, and so has a collection: then it
	// decides where a page of the newest state ends (see Query.Newest).
	Indexed bool
	// Zero is what an absent value reads as: "", "false" or "0".
	Zero string
}

// BuiltinFields returns the fields, beside metadata.name and metadata.namespace, that
// kube-apiserver 1.36 knows for a built-in type in this version. The slice is the caller's.
//
// A field is listed if the version's conversion of field labels lets it through
// (kubernetes, pkg/apis, AddFieldLabelConversionFunc) and the registry gives it a value
// (pkg/registry, the GetAttrs of the type), and if that value is certain to be the one that
// the object's wire form holds. Left out for want of one of these: status.podIPs of pods,
// which has no value upstream, status.replicas of replicasets and spec.leaseName of
// leasecandidates, which are not let through, and everything of events, which are never kept.
//
// What is not listed may still be known to another version of the upstream. Neither is
// metadata.namespace known for every type: nodes, namespaces, resourceslices and all of
// certificates.k8s.io refuse it.
func BuiltinFields(gvr schema.GroupVersionResource) []Field {
	switch gvr.GroupResource() {
	case schema.GroupResource{Resource: "pods"}:
		return only(gvr, podFields, "v1")
	case schema.GroupResource{Resource: "nodes"}:
		return only(gvr, nodeFields, "v1")
	case schema.GroupResource{Resource: "namespaces"}:
		return only(gvr, namespaceFields, "v1")
	case schema.GroupResource{Resource: "secrets"}:
		return only(gvr, secretFields, "v1")
	case schema.GroupResource{Resource: "services"}:
		return only(gvr, serviceFields, "v1")
	case schema.GroupResource{Resource: "replicationcontrollers"}:
		return only(gvr, replicationControllerFields, "v1")
	case schema.GroupResource{Group: "batch", Resource: "jobs"}:
		return only(gvr, jobFields, "v1")
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:
		return only(gvr, certificateSigningRequestFields, "v1")
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}:
		return only(gvr, clusterTrustBundleFields, "v1beta1", "v1alpha1")
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}:
		return only(gvr, podCertificateRequestFields, "v1beta1")
	case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}:
		return only(gvr, resourceSliceFields, "v1", "v1beta2", "v1beta1")
	}
	return nil
}

// only returns the fields if the version is one of those that have them.
func only(gvr schema.GroupVersionResource, fields func() []Field, versions ...string) []Field {
	if !slices.Contains(versions, gvr.Version) {
		return nil
	}
	return fields()
}

// numbers is a path in the protobuf form.
func numbers(path ...protowire.Number) []protowire.Number { return path }

func podFields() []Field {
	nodeName := Field{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Protobuf: numbers(2, 10), Indexed: true}
	// The name that clients from before Kubernetes 1.0 knew it by; the same index serves it.
	host := nodeName
	host.Name, host.Indexed = "spec.host", false
	return []Field{
		nodeName,
		host,
		{Name: "spec.restartPolicy", JSON: []string{"spec", "restartPolicy"}, Protobuf: numbers(2, 3)},
		{Name: "spec.schedulerName", JSON: []string{"spec", "schedulerName"}, Protobuf: numbers(2, 19)},
		{Name: "spec.serviceAccountName", JSON: []string{"spec", "serviceAccountName"}, Protobuf: numbers(2, 8)},
		// Kept in the security context upstream, but written here only.
		{Name: "spec.hostNetwork", JSON: []string{"spec", "hostNetwork"}, Protobuf: numbers(2, 11), Zero: "false"},
		{Name: "status.phase", JSON: []string{"status", "phase"}, Protobuf: numbers(3, 1)},
		// The first of podIPs upstream, and so is what is written as podIP.
		{Name: "status.podIP", JSON: []string{"status", "podIP"}, Protobuf: numbers(3, 6)},
		{Name: "status.nominatedNodeName", JSON: []string{"status", "nominatedNodeName"}, Protobuf: numbers(3, 11)},
	}
}

func nodeFields() []Field {
	return []Field{
		{Name: "spec.unschedulable", JSON: []string{"spec", "unschedulable"}, Protobuf: numbers(2, 4), Zero: "false"},
	}
}

func namespaceFields() []Field {
	return []Field{
		{Name: "status.phase", JSON: []string{"status", "phase"}, Protobuf: numbers(3, 1)},
	}
}

func secretFields() []Field {
	return []Field{
		{Name: "type", JSON: []string{"type"}, Protobuf: numbers(3)},
	}
}

func serviceFields() []Field {
	return []Field{
		{Name: "spec.clusterIP", JSON: []string{"spec", "clusterIP"}, Protobuf: numbers(2, 3)},
		{Name: "spec.type", JSON: []string{"spec", "type"}, Protobuf: numbers(2, 4)},
	}
}

func replicationControllerFields() []Field {
	return []Field{
		{Name: "status.replicas", JSON: []string{"status", "replicas"}, Protobuf: numbers(3, 1), Zero: "0"},
	}
}

func jobFields() []Field {
	return []Field{
		{Name: "status.successful", JSON: []string{"status", "succeeded"}, Protobuf: numbers(3, 5), Zero: "0"},
	}
}

func certificateSigningRequestFields() []Field {
	return []Field{
		{Name: "spec.signerName", JSON: []string{"spec", "signerName"}, Protobuf: numbers(2, 7)},
	}
}

func clusterTrustBundleFields() []Field {
	return []Field{
		{Name: "spec.signerName", JSON: []string{"spec", "signerName"}, Protobuf: numbers(2, 1)},
	}
}

func podCertificateRequestFields() []Field {
	return []Field{
		{Name: "spec.signerName", JSON: []string{"spec", "signerName"}, Protobuf: numbers(2, 1)},
		{Name: "spec.podName", JSON: []string{"spec", "podName"}, Protobuf: numbers(2, 2)},
		{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Protobuf: numbers(2, 6)},
	}
}

func resourceSliceFields() []Field {
	return []Field{
		{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Protobuf: numbers(2, 3), Indexed: true},
		{Name: "spec.driver", JSON: []string{"spec", "driver"}, Protobuf: numbers(2, 1)},
	}
}
