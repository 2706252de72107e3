package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

// accountDir is where client-go looks for a pod's credentials.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// kubelet starts the containers of pods, as far as one needs it for programs without images: each
// gets a root directory of its own, with the program and what is mounted.
type kubelet struct {
	cp     *controlplane.ControlPlane
	client kubernetes.Interface

	mu     sync.Mutex
	tokens map[types.UID]string // by their accounts
}

// container is a process that thinks that it is in a pod.
type container struct {
	root   string
	before []string // the files, when it started
	cmd    *exec.Cmd
	log    *logbuffer.Buffer
	exited chan struct{}
	exit   error
}

// runToEnd runs a pod whose containers end well by themselves: the init containers one after the
// other, then all others at the same time, the last one a little earlier, so that nobody can rely
// on their order. It returns what each has printed, by its name.
func (k *kubelet) runToEnd(t *testing.T, namespace string, pod corev1.PodSpec, program string) map[string]string {
	t.Helper()
	printed := map[string]string{}
	run := func(containers ...corev1.Container) {
		started := map[string]*container{}
		for _, spec := range slices.Backward(containers) {
			started[spec.Name] = k.start(t, namespace, pod, spec.Name, program)
		}
		for name, c := range started {
			text, err := c.wait(t)
			if err != nil {
				t.Fatalf("%s: %v: %s", name, err, secrets.Suite.Masked(text))
			}
			printed[name] = text
		}
	}
	for _, spec := range pod.InitContainers {
		run(spec)
	}
	run(pod.Containers...)
	return printed
}

// start starts one container of a pod, with a program as its entry point.
func (k *kubelet) start(t *testing.T, namespace string, pod corev1.PodSpec, name, program string) *container {
	t.Helper()
	all := slices.Concat(pod.InitContainers, pod.Containers)
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the pod has no container %s", name)
	}
	spec := all[i]
	c := &container{root: k.rootOf(t, namespace, pod, spec, program), log: &logbuffer.Buffer{}, exited: make(chan struct{})}
	c.before = c.files(t)

	api := strings.TrimPrefix(k.cp.URL(), "https://")
	host, port, _ := strings.Cut(api, ":")
	c.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), "/program", spec.Args...) // #nosec G204 -- inside its root
	c.cmd.Dir = "/"
	c.cmd.Env = []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	for _, env := range spec.Env {
		if env.ValueFrom != nil {
			t.Fatalf("%s has a value from elsewhere, which this kubelet does not know", env.Name)
		}
		c.cmd.Env = append(c.cmd.Env, env.Name+"="+env.Value)
	}
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = confined(c.root, pod.SecurityContext)
	started := make(chan error, 1)
	go func() {
		// The kernel kills the child when this thread ends.
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.exit = c.cmd.Wait()
		}
		close(c.exited)
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting %s in a root of its own: %v", name, err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.exited
		if t.Failed() {
			t.Logf("%s says:\n%s", name, secrets.Suite.Masked(c.log.String()))
		}
		for _, leak := range secrets.Suite.Search("the output of "+name, c.log.String()) {
			t.Error(leak)
		}
	})
	return c
}

// confined makes a process see its root only, as the pod's user. Who is not root is in a namespace
// where that user is this one.
func confined(root string, as *corev1.PodSecurityContext) *syscall.SysProcAttr {
	uid, gid := int(*as.RunAsUser), int(*as.RunAsGroup)
	attributes := &syscall.SysProcAttr{Chroot: root, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		// #nosec G115 -- 65532
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{uint32(*as.FSGroup)}}
		return attributes
	}
	attributes.Cloneflags = syscall.CLONE_NEWUSER
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getuid(), Size: 1}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getgid(), Size: 1}}
	return attributes
}

// rootOf makes a root directory with the program, what the container mounts, and the account's
// token.
func (k *kubelet) rootOf(t *testing.T, namespace string, pod corev1.PodSpec, spec corev1.Container, program string) string {
	t.Helper()
	root := t.TempDir()
	binary, err := os.ReadFile(program) // #nosec G304 -- built by this test
	expect.NoError(t, err)
	put(t, root, "/program", binary, 0o555, pod.SecurityContext)
	put(t, root, "/etc/hosts", []byte(k.hosts(t, pod.HostAliases...)), 0o444, pod.SecurityContext)
	for _, mount := range spec.VolumeMounts {
		if !mount.ReadOnly {
			t.Errorf("%s can be written to", mount.MountPath)
		}
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			t.Fatalf("no volume %s", mount.Name)
		}
		for file, content := range k.content(t, namespace, pod, pod.Volumes[i].VolumeSource) {
			mode := os.FileMode(0o444)
			if pod.Volumes[i].Secret != nil {
				if *pod.Volumes[i].Secret.DefaultMode != 0o400 {
					t.Errorf("the volume %s has mode %o", mount.Name, *pod.Volumes[i].Secret.DefaultMode)
				}
				mode = 0o440 // as fsGroup makes it
				secrets.Suite.AddKey("the key in "+file, content)
			}
			put(t, root, filepath.Join(mount.MountPath, file), content, mode, pod.SecurityContext)
		}
	}
	// As kube-apiserver adds it, unless the pod has it already.
	mounts := func(m corev1.VolumeMount) bool { return m.MountPath == accountDir }
	if automount := pod.AutomountServiceAccountToken; (automount == nil || *automount) && !slices.ContainsFunc(spec.VolumeMounts, mounts) {
		token := k.token(t, namespace, pod.ServiceAccountName)
		for file, content := range map[string][]byte{"token": []byte(token), "ca.crt": k.cp.CA(), "namespace": []byte(namespace)} {
			put(t, root, filepath.Join(accountDir, file), content, 0o440, pod.SecurityContext)
		}
	}
	return root
}

// apiServer is the address of the API server in EndpointSlices, which take none of loopback.
const apiServer = "192.0.2.1"

// hosts are in place of the cluster's DNS and network: the name of each Service, and each alias of its
// address, with the address of what its selector finds, and those of its EndpointSlices. The port is the
// Service's own.
func (k *kubelet) hosts(t *testing.T, aliases ...corev1.HostAlias) string {
	t.Helper()
	services, err := k.client.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	deployments, err := k.client.AppsV1().Deployments(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	endpoints, err := k.client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	var hosts strings.Builder
	for _, service := range services.Items {
		names := []string{service.Name + "." + service.Namespace + ".svc"}
		for _, alias := range aliases {
			if alias.IP == service.Spec.ClusterIP {
				names = append(names, alias.Hostnames...)
			} else if slices.Contains(alias.Hostnames, names[0]) {
				names[0] = "" // DNS is not asked
			}
		}
		leadsTo := func(address string) {
			for _, name := range names {
				fmt.Fprintln(&hosts, address, name)
			}
		}
		for _, d := range deployments.Items {
			pods := d.Spec.Template
			if d.Namespace == service.Namespace && service.Spec.Selector != nil && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pods.Labels)) {
				leadsTo(bindAddress(pods.Spec.Containers[0]))
			}
		}
		for _, s := range endpoints.Items {
			if s.Namespace != service.Namespace || s.Labels[discoveryv1.LabelServiceName] != service.Name {
				continue
			}
			for _, endpoint := range s.Endpoints {
				for _, address := range endpoint.Addresses {
					leadsTo(strings.Replace(address, apiServer, "127.0.0.1", 1))
				}
			}
		}
	}
	return hosts.String()
}

// bindAddress is where listproxy's containers are, all of them on this machine.
func bindAddress(listproxy corev1.Container) string {
	for _, arg := range listproxy.Args {
		if address, ok := strings.CutPrefix(arg, "--bind-address="); ok {
			return address
		}
	}
	return ""
}

// token is that of a pod of an account, the same for all containers of a pod.
func (k *kubelet) token(t *testing.T, namespace, account string) string {
	t.Helper()
	of, err := k.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), account, metav1.GetOptions{})
	expect.NoError(t, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tokens[of.UID] == "" {
		token, err := k.cp.CreateServiceAccountToken(t.Context(), namespace, account)
		expect.NoError(t, err)
		if k.tokens == nil {
			k.tokens = map[types.UID]string{}
		}
		k.tokens[of.UID] = token
	}
	return k.tokens[of.UID]
}

// content is what a volume of a pod has, by the paths in it.
func (k *kubelet) content(t *testing.T, namespace string, pod corev1.PodSpec, volume corev1.VolumeSource) map[string][]byte {
	t.Helper()
	data := map[string][]byte{}
	var items []corev1.KeyToPath
	switch {
	case volume.ConfigMap != nil:
		c, err := k.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), volume.ConfigMap.Name, metav1.GetOptions{})
		expect.NoError(t, err)
		for key, text := range c.Data {
			data[key] = []byte(text)
		}
		items = volume.ConfigMap.Items
	case volume.Secret != nil:
		s, err := k.client.CoreV1().Secrets(namespace).Get(t.Context(), volume.Secret.SecretName, metav1.GetOptions{})
		expect.NoError(t, err)
		data, items = s.Data, volume.Secret.Items
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			switch {
			case source.ServiceAccountToken != nil:
				data[source.ServiceAccountToken.Path] = []byte(k.token(t, namespace, pod.ServiceAccountName))
			case source.ConfigMap != nil:
				maps.Copy(data, k.content(t, namespace, pod, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: source.ConfigMap.LocalObjectReference, Items: source.ConfigMap.Items,
				}}))
			case source.DownwardAPI != nil && source.DownwardAPI.Items[0].FieldRef.FieldPath == "metadata.namespace":
				data[source.DownwardAPI.Items[0].Path] = []byte(namespace)
			default:
				t.Fatalf("a source that this kubelet does not know: %v", source)
			}
		}
	default:
		t.Fatalf("a volume that this kubelet does not know: %v", volume)
	}
	if items == nil {
		return data
	}
	chosen := map[string][]byte{}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			t.Fatalf("the volume %v has no %s", volume, item.Key)
		}
		chosen[item.Path] = content
	}
	return chosen
}

// put writes a file into a root; it is root's, and of the pod's group.
func put(t *testing.T, root, path string, content []byte, mode os.FileMode, as *corev1.PodSecurityContext) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- as directories of an image are
		t.Fatal(err)
	}
	expect.NoError(t, os.WriteFile(path, content, 0o600))
	if os.Geteuid() == 0 {
		expect.NoError(t, os.Chown(path, 0, int(*as.FSGroup)))
	}
	expect.NoError(t, os.Chmod(path, mode))
}

// files are all files of the container.
func (c *container) files(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(c.root, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, strings.TrimPrefix(path, c.root))
		return err
	})
	expect.NoError(t, err)
	return all
}

// awaitReady asks the pod's readiness probe until it says yes.
func (c *container) awaitReady(t *testing.T, spec corev1.Container) {
	t.Helper()
	probe := spec.ReadinessProbe.HTTPGet
	i := slices.IndexFunc(spec.Ports, func(p corev1.ContainerPort) bool { return p.Name == probe.Port.StrVal })
	address := fmt.Sprintf("http://%s:%d%s", bindAddress(spec), spec.Ports[i].ContainerPort, probe.Path)
	poll.Until(t, patience, "ready: "+address, func() bool {
		select {
		case <-c.exited:
			t.Fatalf("it ended: %v", c.exit)
		default:
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		expect.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
}

// stop ends the container as a kubelet does, and expects it to end well and to have written
// nothing.
func (c *container) stop(t *testing.T) {
	t.Helper()
	expect.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
	<-c.exited
	if c.exit != nil {
		t.Errorf("it ended with %v", c.exit)
	}
	if diff := cmp.Diff(c.before, c.files(t)); diff != "" {
		t.Errorf("its files are others than before:\n%s", diff)
	}
}

// wait waits until the container ends by itself, and returns what it printed.
func (c *container) wait(t *testing.T) (string, error) {
	t.Helper()
	select {
	case <-c.exited:
		return c.log.String(), c.exit
	case <-t.Context().Done():
		return "", errors.New("the test ended before")
	}
}
