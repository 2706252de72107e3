package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/expect"
)

// typed is an object of k8s.io/api, which knows both wire forms.
type typed interface {
	Marshal() ([]byte, error)
}

// fieldCase is an object, and what the upstream's registry says of each of its fields.
type fieldCase struct {
	gvr    schema.GroupVersionResource
	object typed
	want   map[string]string
}

func TestBuiltinFields(t *testing.T) {
	node := "node-1"
	core := schema.GroupVersion{Version: "v1"}
	certificates := schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1"}
	certificatesBeta := schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1beta1"}
	certificatesAlpha := schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1alpha1"}
	slices := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "resource.k8s.io", Version: version, Resource: "resourceslices"}
	}
	jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

	for _, test := range []fieldCase{
		{core.WithResource("pods"), &corev1.Pod{}, map[string]string{
			"spec.nodeName": "", "spec.host": "", "spec.restartPolicy": "", "spec.schedulerName": "", "spec.serviceAccountName": "",
			"spec.hostNetwork": "false", "status.phase": "", "status.podIP": "", "status.nominatedNodeName": "",
		}},
		{core.WithResource("pods"), &corev1.Pod{
			Spec: corev1.PodSpec{
				NodeName: node, RestartPolicy: corev1.RestartPolicyOnFailure, SchedulerName: "scheduler", ServiceAccountName: "account",
				DeprecatedServiceAccount: "not this", Hostname: "nor this", HostNetwork: true,
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, HostIP: "not this", PodIP: "fd00::1", PodIPs: []corev1.PodIP{{IP: "fd00::1"}, {IP: "10.0.0.1"}},
				NominatedNodeName: "node-2",
			},
		}, map[string]string{
			"spec.nodeName": node, "spec.host": node, "spec.restartPolicy": "OnFailure", "spec.schedulerName": "scheduler",
			"spec.serviceAccountName": "account", "spec.hostNetwork": "true", "status.phase": "Running", "status.podIP": "fd00::1",
			"status.nominatedNodeName": "node-2",
		}},
		{core.WithResource("nodes"), &corev1.Node{}, map[string]string{"spec.unschedulable": "false"}},
		{core.WithResource("nodes"), &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, map[string]string{"spec.unschedulable": "true"}},
		{core.WithResource("namespaces"), &corev1.Namespace{}, map[string]string{"status.phase": ""}},
		{core.WithResource("namespaces"), &corev1.Namespace{
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
		}, map[string]string{"status.phase": "Terminating"}},
		{core.WithResource("secrets"), &corev1.Secret{}, map[string]string{"type": ""}},
		{core.WithResource("secrets"), &corev1.Secret{
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{"type": []byte("not this")},
		}, map[string]string{"type": "kubernetes.io/tls"}},
		{core.WithResource("services"), &corev1.Service{}, map[string]string{"spec.clusterIP": "", "spec.type": ""}},
		{core.WithResource("services"), &corev1.Service{Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, ClusterIPs: []string{"None"}, ExternalIPs: []string{"not this"}, Type: corev1.ServiceTypeNodePort,
		}}, map[string]string{"spec.clusterIP": "None", "spec.type": "NodePort"}},
		{core.WithResource("replicationcontrollers"), &corev1.ReplicationController{}, map[string]string{"status.replicas": "0"}},
		{core.WithResource("replicationcontrollers"), &corev1.ReplicationController{
			Status: corev1.ReplicationControllerStatus{Replicas: 300, ReadyReplicas: 7},
		}, map[string]string{"status.replicas": "300"}},
		{jobs, &batchv1.Job{}, map[string]string{"status.successful": "0"}},
		{jobs, &batchv1.Job{Status: batchv1.JobStatus{Active: 1, Succeeded: -2, Failed: 3}}, map[string]string{"status.successful": "-2"}},
		{certificates.WithResource("certificatesigningrequests"), &certificatesv1.CertificateSigningRequest{}, map[string]string{"spec.signerName": ""}},
		{certificates.WithResource("certificatesigningrequests"), &certificatesv1.CertificateSigningRequest{
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/signer", Username: "not this"},
		}, map[string]string{"spec.signerName": "example.com/signer"}},
		{certificatesAlpha.WithResource("clustertrustbundles"), &certificatesv1alpha1.ClusterTrustBundle{}, map[string]string{"spec.signerName": ""}},
		{certificatesAlpha.WithResource("clustertrustbundles"), &certificatesv1alpha1.ClusterTrustBundle{
			Spec: certificatesv1alpha1.ClusterTrustBundleSpec{SignerName: "example.com/signer", TrustBundle: "not this"},
		}, map[string]string{"spec.signerName": "example.com/signer"}},
		{certificatesBeta.WithResource("clustertrustbundles"), &certificatesv1beta1.ClusterTrustBundle{}, map[string]string{"spec.signerName": ""}},
		{certificatesBeta.WithResource("clustertrustbundles"), &certificatesv1beta1.ClusterTrustBundle{
			Spec: certificatesv1beta1.ClusterTrustBundleSpec{SignerName: "example.com/signer", TrustBundle: "not this"},
		}, map[string]string{"spec.signerName": "example.com/signer"}},
		{certificatesBeta.WithResource("podcertificaterequests"), &certificatesv1beta1.PodCertificateRequest{}, map[string]string{
			"spec.signerName": "", "spec.podName": "", "spec.nodeName": "",
		}},
		{certificatesBeta.WithResource("podcertificaterequests"), &certificatesv1beta1.PodCertificateRequest{
			Spec: certificatesv1beta1.PodCertificateRequestSpec{
				SignerName: "example.com/signer", PodName: "pod", PodUID: "not this", ServiceAccountName: "nor this", NodeName: "node-1", NodeUID: "x",
			},
		}, map[string]string{"spec.signerName": "example.com/signer", "spec.podName": "pod", "spec.nodeName": node}},
		{slices("v1"), &resourcev1.ResourceSlice{}, map[string]string{"spec.nodeName": "", "spec.driver": ""}},
		{slices("v1"), &resourcev1.ResourceSlice{
			Spec: resourcev1.ResourceSliceSpec{NodeName: &node, Driver: "driver"},
		}, map[string]string{"spec.nodeName": node, "spec.driver": "driver"}},
		{slices("v1beta2"), &resourcev1beta2.ResourceSlice{}, map[string]string{"spec.nodeName": "", "spec.driver": ""}},
		{slices("v1beta2"), &resourcev1beta2.ResourceSlice{
			Spec: resourcev1beta2.ResourceSliceSpec{NodeName: &node, Driver: "driver"},
		}, map[string]string{"spec.nodeName": node, "spec.driver": "driver"}},
		{slices("v1beta1"), &resourcev1beta1.ResourceSlice{}, map[string]string{"spec.nodeName": "", "spec.driver": ""}},
		{slices("v1beta1"), &resourcev1beta1.ResourceSlice{
			Spec: resourcev1beta1.ResourceSliceSpec{NodeName: node, Driver: "driver"},
		}, map[string]string{"spec.nodeName": node, "spec.driver": "driver"}},
	} {
		t.Run(test.gvr.String(), func(t *testing.T) {
			checkFields(t, test)
		})
	}
}

// checkFields reads every field from both wire forms of the object.
func checkFields(t *testing.T, test fieldCase) {
	t.Helper()
	asJSON, err := json.Marshal(test.object)
	expect.NoError(t, err)
	asProtobuf, err := test.object.Marshal()
	expect.NoError(t, err)
	found := BuiltinFields(test.gvr)
	if len(found) != len(test.want) {
		t.Errorf("%d fields, want %d", len(found), len(test.want))
	}
	for _, field := range found {
		want, ok := test.want[field.Name]
		if !ok {
			t.Errorf("unexpected field %s", field.Name)
			continue
		}
		if got, err := jsonValue(asJSON, field); err != nil || got != want {
			t.Errorf("%s in JSON is %q, want %q; error %v", field.Name, got, want, err)
		}
		if got, err := protobufValue(asProtobuf, field.Protobuf, field.Zero); err != nil || got != want {
			t.Errorf("%s in protobuf is %q, want %q; error %v", field.Name, got, want, err)
		}
	}
}

// jsonValue reads a field from an object in JSON.
func jsonValue(object []byte, field Field) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return "", err
	}
	for _, name := range field.JSON {
		members, ok := value.(map[string]any)
		if !ok {
			return "", fmt.Errorf("%s is not in an object", name)
		}
		if value, ok = members[name]; !ok {
			return field.Zero, nil
		}
	}
	return fmt.Sprint(value), nil
}

// protobufValue reads a field from an object in protobuf.
func protobufValue(message []byte, path []protowire.Number, zero string) (string, error) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(number, kind, message)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		value := message[:n]
		message = message[n:]
		if number != path[0] {
			continue
		}
		if kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(value)
			if len(path) > 1 {
				return protobufValue(inner, path[1:], zero)
			}
			return string(inner), nil
		}
		varint, _ := protowire.ConsumeVarint(value)
		if zero == "false" {
			return strconv.FormatBool(protowire.DecodeBool(varint)), nil
		}
		return strconv.FormatInt(int64(varint), 10), nil
	}
	return zero, nil
}

func TestBuiltinFieldsOfOthers(t *testing.T) {
	for _, gvr := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"},
		{Version: "v1", Resource: "events"},
		{Version: "v2", Resource: "pods"},
		{Group: "example.com", Version: "v1", Resource: "pods"},
		{Group: "apps", Version: "v1", Resource: "replicasets"},
		{Group: "batch", Version: "v1beta1", Resource: "jobs"},
		{Group: "batch", Version: "v1", Resource: "cronjobs"},
		{Group: "certificates.k8s.io", Version: "v1", Resource: "clustertrustbundles"},
		{Group: "coordination.k8s.io", Version: "v1beta1", Resource: "leasecandidates"},
		{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"},
	} {
		if got := BuiltinFields(gvr); len(got) > 0 {
			t.Errorf("%s has %v", gvr, got)
		}
	}
}

// TestBuiltinFieldsAreTheCallers: what one caller does to a table, no other sees.
func TestBuiltinFieldsAreTheCallers(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	BuiltinFields(pods)[0].JSON[0] = "changed"
	for _, field := range BuiltinFields(pods) {
		if field.JSON[0] == "changed" {
			t.Errorf("%s was changed", field.Name)
		}
	}
}
