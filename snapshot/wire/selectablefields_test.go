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

// TestNoBuiltinFields: BuiltinFields returns no fields for a resource, a group or a version that it does not know.
func TestNoBuiltinFields(t *testing.T) {
	for _, unknown := range []string{"v1 configmaps", "v2 pods", "v1 pods.example.com", "v1 clustertrustbundles.certificates.k8s.io"} {
		if got := BuiltinFields(parseGVR(unknown)); len(got) > 0 {
			t.Errorf("BuiltinFields of %s: got %v, want none", unknown, got)
		}
	}
}

// TestBuiltinFields: BuiltinFields returns the selectable fields of a built-in type. For each field, the paths in JSON and in
// protobuf lead to the same place as in the type's Go struct in k8s.io/api: ReadValues reads what is in that place, and nothing
// else.
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
			allZero := make([]string, len(all))
			for i, f := range all {
				allZero[i] = f.Zero
			}
			checkBuiltinValues(t, gvk, all, "{}", allZero)
			// Each field in turn is the only one in the object.
			for _, f := range all {
				path := cmp.Or(pathsByName[f.Name], f.Name)
				expect.Same(t, strings.Split(path, "."), f.JSON)
				for valueInJSON, value := range sampleValues[f.Zero] {
					want := slices.Clone(allZero)
					for i, other := range all {
						if slices.Equal(other.JSON, f.JSON) { // f, or another name of f
							want[i] = value
						}
					}
					checkBuiltinValues(t, gvk, all, nestJSON(f.JSON, valueInJSON), want)
				}
			}
		})
	}
}

// pathsByName has the paths of the fields whose name is not their path.
var pathsByName = map[string]string{"spec.host": "spec.nodeName", "status.successful": "status.succeeded"}

// sampleValues has values of fields, by the field's Zero: how JSON has the value, and how selectors compare it.
var sampleValues = map[string]map[string]string{
	"":      {`"a:1,b"`: "a:1,b"},
	"false": {"true": "true"},
	"0":     {"300": "300", "-2": "-2"},
}

// parseGVR parses a version and a resource with its group.
func parseGVR(text string) schema.GroupVersionResource {
	version, resource, _ := strings.Cut(text, " ")
	return schema.ParseGroupResource(resource).WithVersion(version)
}

// nestJSON returns the JSON of an object that has only a value, at a path. For spec.nodeName it returns
// {"spec":{"nodeName":value}}.
func nestJSON(path []string, value string) string {
	for _, name := range slices.Backward(path) {
		value = fmt.Sprintf("{%q:%s}", name, value)
	}
	return value
}

// checkBuiltinValues decodes an object from JSON, and encodes it again with the types of k8s.io/api, in JSON and in protobuf.
// From both, ReadValues must read the values want of the fields all.
func checkBuiltinValues(t *testing.T, gvk schema.GroupVersionKind, all []Field, objectInJSON string, want []string) {
	t.Helper()
	object, err := scheme.Scheme.New(gvk)
	expect.NoError(t, err)
	expect.NoError(t, json.Unmarshal([]byte(objectInJSON), object))
	asJSON, err := json.Marshal(object)
	expect.NoError(t, err)
	asProtobuf, err := object.(interface{ Marshal() ([]byte, error) }).Marshal()
	expect.NoError(t, err)
	for encoding, item := range map[Encoding][]byte{jsonEncoding{}: asJSON, protobufEncoding{}: asProtobuf} {
		got, err := NewFieldPaths(all).ReadValues(encoding, item)
		expect.NoError(t, err)
		expect.Same(t, want, got)
	}
}
