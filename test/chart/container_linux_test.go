package chart

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

// The test is a kubelet, as far as one is needed for programs without images: each container gets a root
// directory of its own, with the program and what is mounted.

// imageVersion is what the program says that it is.
const imageVersion = "v1.2.3-test"

// image is the program, once it was built.
var image string

// buildImage runs the Dockerfile's own command to build the program, for this machine's platform and
// with [imageVersion], and returns where it is.
func buildImage(t *testing.T) string {
	t.Helper()
	harness.Long(t)
	if image != "" {
		return image
	}
	out, err := filepath.Abs(filepath.Join(repository, "bin", "listproxy-image"))
	expect.NoError(t, err)
	compile := matches(`(?m)^RUN (.* go build .*)$`, page(t, "Dockerfile"))
	if len(compile) != 1 || !strings.Contains(compile[0], " -o /listproxy ") {
		t.Fatalf("the Dockerfile does not build /listproxy once: %q", compile)
	}
	moved := strings.Replace(compile[0], " -o /listproxy ", " -o '"+out+"' ", 1)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", moved) // #nosec G204 -- the repository's own command
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "VERSION="+imageVersion, "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", moved, err, output)
	}
	image = out
	return out
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

// create makes a pod, and returns it as kube-apiserver makes it: with the token of its account.
func (c *cluster) create(t *testing.T, namespace string, labels map[string]string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Labels: labels}, Spec: spec}
	made, err := c.admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	expect.NoError(t, err)
	return made
}

// runToEnd runs a pod whose containers end well by themselves, one after the other, and returns what the
// last has printed.
func (c *cluster) runToEnd(t *testing.T, pod *corev1.Pod, program string) (printed string) {
	t.Helper()
	for _, spec := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		running := c.start(t, pod, spec, program)
		select {
		case <-running.exited:
		case <-t.Context().Done():
			t.Fatal("the test ended before")
		}
		printed = running.log.String()
		if running.exit != nil {
			t.Fatalf("%s: %v: %s", spec.Name, running.exit, secrets.Suite.Masked(printed))
		}
	}
	return printed
}

// start starts one container of a pod, with a program as its entry point.
func (c *cluster) start(t *testing.T, pod *corev1.Pod, spec corev1.Container, program string) *container {
	t.Helper()
	running := &container{root: c.rootOf(t, pod, spec, program), log: &logbuffer.Buffer{}, exited: make(chan struct{})}
	running.before = running.files(t)
	host, port, _ := strings.Cut(strings.TrimPrefix(c.cp.URL(), "https://"), ":")
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/program", spec.Args...) // #nosec G204 -- inside its root
	cmd.Dir = "/"
	cmd.Env = []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	for _, env := range spec.Env {
		if env.ValueFrom != nil {
			t.Fatalf("%s has a value from elsewhere, which this kubelet does not know", env.Name)
		}
		cmd.Env = append(cmd.Env, env.Name+"="+env.Value)
	}
	cmd.Stdout, cmd.Stderr = running.log, running.log
	cmd.SysProcAttr = confined(running.root, pod.Spec.SecurityContext)
	running.cmd = cmd
	started := make(chan error, 1)
	go func() {
		// The kernel kills the child when this thread ends.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			running.exit = cmd.Wait()
		}
		close(running.exited)
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting %s in a root of its own: %v", spec.Name, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-running.exited
		if t.Failed() {
			t.Logf("%s says:\n%s", spec.Name, secrets.Suite.Masked(running.log.String()))
		}
		for _, leak := range secrets.Suite.Search("the output of "+spec.Name, running.log.String()) {
			t.Error(leak)
		}
	})
	return running
}

// stop ends the container as a kubelet does, and expects it to end well and to have written nothing.
func (c *container) stop(t *testing.T) {
	t.Helper()
	expect.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
	<-c.exited
	expect.NoError(t, c.exit)
	expect.Same(t, c.before, c.files(t))
}

// files are all files of the container.
func (c *container) files(t *testing.T) (all []string) {
	t.Helper()
	expect.NoError(t, filepath.WalkDir(c.root, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, strings.TrimPrefix(path, c.root))
		return err
	}))
	return all
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

// rootOf makes a root directory with the program and what the container mounts. Its files are root's, and of
// the pod's group.
func (c *cluster) rootOf(t *testing.T, pod *corev1.Pod, spec corev1.Container, program string) string {
	t.Helper()
	root := t.TempDir()
	put := func(path string, content []byte, mode os.FileMode) {
		path = filepath.Join(root, path)
		expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755)) // #nosec G301 -- as directories of an image are
		expect.NoError(t, os.WriteFile(path, content, 0o600))
		if os.Geteuid() == 0 {
			expect.NoError(t, os.Chown(path, 0, int(*pod.Spec.SecurityContext.FSGroup)))
		}
		expect.NoError(t, os.Chmod(path, mode))
	}
	binary, err := os.ReadFile(program) // #nosec G304 -- built by this test
	expect.NoError(t, err)
	put("/program", binary, 0o555)
	put("/etc/hosts", []byte(c.hosts(t, pod.Spec.HostAliases...)), 0o444)
	for _, mount := range spec.VolumeMounts {
		if !mount.ReadOnly {
			t.Errorf("%s can be written to", mount.MountPath)
		}
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		secret := pod.Spec.Volumes[i].Secret
		if secret != nil && *secret.DefaultMode != 0o400 {
			t.Errorf("the volume %s has mode %o", mount.Name, *secret.DefaultMode)
		}
		for file, content := range c.content(t, pod, pod.Spec.Volumes[i].VolumeSource) {
			mode := os.FileMode(0o444)
			if secret != nil {
				mode = 0o440 // as fsGroup makes it
				secrets.Suite.AddKey("the key in "+file, content)
			}
			put(filepath.Join(mount.MountPath, file), content, mode)
		}
	}
	return root
}

// content is what a volume of a pod has, by the paths in it.
func (c *cluster) content(t *testing.T, pod *corev1.Pod, volume corev1.VolumeSource) map[string][]byte {
	t.Helper()
	data := map[string][]byte{}
	var items []corev1.KeyToPath
	switch {
	case volume.ConfigMap != nil:
		found, err := c.admin.CoreV1().ConfigMaps(pod.Namespace).Get(t.Context(), volume.ConfigMap.Name, metav1.GetOptions{})
		expect.NoError(t, err)
		for key, text := range found.Data {
			data[key] = []byte(text)
		}
		items = volume.ConfigMap.Items
	case volume.Secret != nil:
		found, err := c.admin.CoreV1().Secrets(pod.Namespace).Get(t.Context(), volume.Secret.SecretName, metav1.GetOptions{})
		expect.NoError(t, err)
		data, items = found.Data, volume.Secret.Items
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			switch {
			case source.ServiceAccountToken != nil:
				data[source.ServiceAccountToken.Path] = []byte(c.token(t, pod))
			case source.ConfigMap != nil:
				maps.Copy(data, c.content(t, pod, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: source.ConfigMap.LocalObjectReference, Items: source.ConfigMap.Items,
				}}))
			case source.DownwardAPI != nil && source.DownwardAPI.Items[0].FieldRef.FieldPath == "metadata.namespace":
				data[source.DownwardAPI.Items[0].Path] = []byte(pod.Namespace)
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

// token is that of a pod's account, the same for all of its pods: listproxy forwards the first list of each.
func (c *cluster) token(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	account, err := c.admin.CoreV1().ServiceAccounts(pod.Namespace).Get(t.Context(), pod.Spec.ServiceAccountName, metav1.GetOptions{})
	expect.NoError(t, err)
	if c.tokens[account.UID] == "" {
		c.tokens[account.UID], err = c.cp.CreateServiceAccountToken(t.Context(), pod.Namespace, account.Name)
		expect.NoError(t, err)
	}
	return c.tokens[account.UID]
}

// apiServer is the address of the API server in EndpointSlices, which take none of loopback.
const apiServer = "192.0.2.1"

// hosts are in place of the cluster's DNS and network: the name of each Service, and each alias of its
// address, with the address of what its selector finds, and those of its EndpointSlices. The port is the
// Service's own.
func (c *cluster) hosts(t *testing.T, aliases ...corev1.HostAlias) string {
	t.Helper()
	services, err := c.admin.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
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
		for _, address := range c.addresses(t, service) {
			for _, name := range names {
				fmt.Fprintln(&hosts, address, name)
			}
		}
	}
	return hosts.String()
}

// addresses are where a Service leads to.
func (c *cluster) addresses(t *testing.T, service corev1.Service) (all []string) {
	t.Helper()
	deployments, err := c.admin.AppsV1().Deployments(service.Namespace).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	for _, d := range deployments.Items {
		pods := d.Spec.Template
		if service.Spec.Selector == nil || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pods.Labels)) {
			continue
		}
		for _, arg := range pods.Spec.Containers[0].Args {
			if address, ok := strings.CutPrefix(arg, "--bind-address="); ok {
				all = append(all, address)
			}
		}
	}
	slices, err := c.admin.DiscoveryV1().EndpointSlices(service.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	expect.NoError(t, err)
	for _, s := range slices.Items {
		for _, endpoint := range s.Endpoints {
			for _, address := range endpoint.Addresses {
				all = append(all, strings.Replace(address, apiServer, "127.0.0.1", 1))
			}
		}
	}
	return all
}
