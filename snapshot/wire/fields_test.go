package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/test/expect"
)

// TestBuiltinFields: each field that the upstream lets select, given a value in an object of k8s.io/api,
// which knows both wire forms, is read from both, and no other field is. Other resources have none.
func TestBuiltinFields(t *testing.T) {
	for other, version := range map[string]string{"configmaps": "v1", "pods": "v2", "pods.example.com": "v1", "clustertrustbundles.certificates.k8s.io": "v1"} {
		if got := BuiltinFields(schema.ParseGroupResource(other).WithVersion(version)); len(got) > 0 {
			t.Errorf("%s in %s has %v", other, version, got)
		}
	}
	// Those whose names are not their paths.
	renamed := map[string]string{"spec.host": "spec.nodeName", "status.successful": "status.succeeded"}
	values := map[string]map[string]string{ // by what an absent one reads as: in JSON, and as it reads
		"": {`"a:1,b"`: "a:1,b"}, "false": {`true`: "true"}, "0": {`300`: "300", `-2`: "-2"},
	}
	for resource, names := range map[string]string{
		"v1 Pod pods": "spec.nodeName spec.host spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork" +
			" status.phase status.podIP status.nominatedNodeName",
		"v1 Node nodes":                                   "spec.unschedulable",
		"v1 Namespace namespaces":                         "status.phase",
		"v1 Secret secrets":                               "type",
		"v1 Service services":                             "spec.clusterIP spec.type",
		"v1 ReplicationController replicationcontrollers": "status.replicas",
		"v1 Job jobs.batch":                               "status.successful",
		"v1 CertificateSigningRequest certificatesigningrequests.certificates.k8s.io": "spec.signerName",
		"v1alpha1 ClusterTrustBundle clustertrustbundles.certificates.k8s.io":         "spec.signerName",
		"v1beta1 ClusterTrustBundle clustertrustbundles.certificates.k8s.io":          "spec.signerName",
		"v1beta1 PodCertificateRequest podcertificaterequests.certificates.k8s.io":    "spec.signerName spec.podName spec.nodeName",
		"v1 ResourceSlice resourceslices.resource.k8s.io":                             "spec.nodeName spec.driver",
		"v1beta2 ResourceSlice resourceslices.resource.k8s.io":                        "spec.nodeName spec.driver",
		"v1beta1 ResourceSlice resourceslices.resource.k8s.io":                        "spec.nodeName spec.driver",
	} {
		t.Run(resource, func(t *testing.T) {
			parts := strings.Fields(resource)
			version, kind, gr := parts[0], parts[1], schema.ParseGroupResource(parts[2])
			found := BuiltinFields(gr.WithVersion(version))
			paths := NewFieldPaths(found)
			// check gives the field at a path a value, or none if the path is empty.
			check := func(path []string, text, value string) {
				t.Helper()
				for _, name := range slices.Backward(path) {
					text = fmt.Sprintf("{%q:%s}", name, text)
				}
				object, err := scheme.Scheme.New(gr.WithVersion(version).GroupVersion().WithKind(kind))
				expect.NoError(t, err)
				expect.NoError(t, json.Unmarshal([]byte(text), object))
				asJSON, err := json.Marshal(object)
				expect.NoError(t, err)
				asProtobuf, err := object.(interface{ Marshal() ([]byte, error) }).Marshal()
				expect.NoError(t, err)
				want := make([]string, len(found))
				for _, f := range found {
					want[paths.Find(f.Name)] = f.Zero
					if slices.Equal(f.JSON, path) {
						want[paths.Find(f.Name)] = value
					}
				}
				for encoding, item := range map[Encoding][]byte{jsonEncoding{}: asJSON, protobufEncoding{}: asProtobuf} {
					got, err := encoding.Values(paths, item)
					expect.NoError(t, err)
					expect.Same(t, want, got)
				}
			}
			check(nil, "{}", "")
			var got []string
			for _, f := range found {
				got = append(got, f.Name)
				path := f.Name
				if other, is := renamed[path]; is {
					path = other
				}
				expect.Same(t, strings.Split(path, "."), f.JSON)
				for text, value := range values[f.Zero] {
					check(f.JSON, text, value)
				}
			}
			expect.Same(t, strings.Fields(names), got)
		})
	}
}
