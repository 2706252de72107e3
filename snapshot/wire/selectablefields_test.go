package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/test/expect"
)

// TestNoBuiltinFields: BuiltinFields returns no fields for other resources, groups or versions.
func TestNoBuiltinFields(t *testing.T) {
	for _, other := range []string{"v1 configmaps", "v2 pods", "v1 pods.example.com", "v1 clustertrustbundles.certificates.k8s.io"} {
		if got := BuiltinFields(parseGVR(other)); len(got) > 0 {
			t.Errorf("BuiltinFields of %s: got %v, want none", other, got)
		}
	}
}

// TestBuiltinFields: BuiltinFields returns the selectable fields of a type in k8s.io/api. ReadValues reads each field from its
// own place in JSON and in protobuf, and from nowhere else.
func TestBuiltinFields(t *testing.T) {
	for resource, tt := range map[string]struct {
		kind       string
		wantFields []string
	}{
		"v1 pods": {kind: "Pod", wantFields: []string{
			"spec.nodeName", "spec.host", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
			"status.phase", "status.podIP", "status.nominatedNodeName",
		}},
		"v1 nodes":                  {kind: "Node", wantFields: []string{"spec.unschedulable"}},
		"v1 namespaces":             {kind: "Namespace", wantFields: []string{"status.phase"}},
		"v1 secrets":                {kind: "Secret", wantFields: []string{"type"}},
		"v1 services":               {kind: "Service", wantFields: []string{"spec.clusterIP", "spec.type"}},
		"v1 replicationcontrollers": {kind: "ReplicationController", wantFields: []string{"status.replicas"}},
		"v1 jobs.batch":             {kind: "Job", wantFields: []string{"status.successful"}},
		"v1 certificatesigningrequests.certificates.k8s.io": {kind: "CertificateSigningRequest", wantFields: []string{"spec.signerName"}},
		"v1alpha1 clustertrustbundles.certificates.k8s.io":  {kind: "ClusterTrustBundle", wantFields: []string{"spec.signerName"}},
		"v1beta1 clustertrustbundles.certificates.k8s.io":   {kind: "ClusterTrustBundle", wantFields: []string{"spec.signerName"}},
		"v1beta1 podcertificaterequests.certificates.k8s.io": {
			kind: "PodCertificateRequest", wantFields: []string{"spec.signerName", "spec.podName", "spec.nodeName"},
		},
		"v1 resourceslices.resource.k8s.io":      {kind: "ResourceSlice", wantFields: []string{"spec.nodeName", "spec.driver"}},
		"v1beta2 resourceslices.resource.k8s.io": {kind: "ResourceSlice", wantFields: []string{"spec.nodeName", "spec.driver"}},
		"v1beta1 resourceslices.resource.k8s.io": {kind: "ResourceSlice", wantFields: []string{"spec.nodeName", "spec.driver"}},
	} {
		t.Run(resource, func(t *testing.T) {
			gvr := parseGVR(resource)
			all := BuiltinFields(gvr)
			var names []string
			for _, f := range all {
				names = append(names, f.Name)
			}
			expect.Same(t, tt.wantFields, names)
			gvk := gvr.GroupVersion().WithKind(tt.kind)
			checkBuiltinValues(t, gvk, all, nil, "{}", "") // an empty object, so all fields have their Zero
			for _, f := range all {
				path := cmp.Or(pathsByName[f.Name], f.Name)
				expect.Same(t, strings.Split(path, "."), f.JSON)
				switch f.Zero {
				case "":
					checkBuiltinValues(t, gvk, all, f.JSON, `"a:1,b"`, "a:1,b")
				case "false":
					checkBuiltinValues(t, gvk, all, f.JSON, "true", "true")
				case "0":
					checkBuiltinValues(t, gvk, all, f.JSON, "300", "300")
					checkBuiltinValues(t, gvk, all, f.JSON, "-2", "-2")
				}
			}
		})
	}
}

// pathsByName has the paths of the fields whose name is not their path.
var pathsByName = map[string]string{"spec.host": "spec.nodeName", "status.successful": "status.succeeded"}

// parseGVR parses a version and a resource with its group.
func parseGVR(text string) schema.GroupVersionResource {
	version, resource, _ := strings.Cut(text, " ")
	return schema.ParseGroupResource(resource).WithVersion(version)
}

// checkBuiltinValues makes an object of a kind that has only the JSON text at a path. In JSON and in protobuf, ReadValues must
// return value for the fields of all with this path, and Zero for the other fields.
func checkBuiltinValues(t *testing.T, gvk schema.GroupVersionKind, all []Field, path []string, text, value string) {
	t.Helper()
	for _, name := range slices.Backward(path) {
		text = fmt.Sprintf("{%q:%s}", name, text)
	}
	object, err := scheme.Scheme.New(gvk)
	expect.NoError(t, err)
	expect.NoError(t, json.Unmarshal([]byte(text), object))
	asJSON, err := json.Marshal(object)
	expect.NoError(t, err)
	asProtobuf, err := object.(interface{ Marshal() ([]byte, error) }).Marshal()
	expect.NoError(t, err)
	want := make([]string, len(all))
	for i, f := range all {
		want[i] = f.Zero
		if slices.Equal(f.JSON, path) {
			want[i] = value
		}
	}
	for encoding, item := range map[Encoding][]byte{jsonEncoding{}: asJSON, protobufEncoding{}: asProtobuf} {
		got, err := NewFieldPaths(all).ReadValues(encoding, item)
		expect.NoError(t, err)
		expect.Same(t, want, got)
	}
}
