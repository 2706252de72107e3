package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// dir is all that is written; it holds keys.
	dir = "/var/lib/listproxy-cluster"
	// group is the control group of all pods, below /sys/fs/cgroup or each of its controllers.
	group = "listproxy-cluster"
	// only is held by who runs a cluster: a name of a socket, which goes with its process.
	only = "@listproxy-cluster"
	// insideEnv tells a process that it is inside.
	insideEnv = "LISTPROXY_CLUSTER_INSIDE"
	// gigabytes are what builds and the cluster need on disk.
	gigabytes = 15
)

// Inside says whether this process is in the cluster's namespaces.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Missing is what this machine lacks. It is told at once, since what comes then takes long.
func Missing() (all []string) {
	if os.Geteuid() != 0 {
		all = append(all, "root, since a kubelet mounts, and makes namespaces and control groups (sudo --preserve-env=PATH make …)")
	}
	for program, from := range map[string]string{"go": "Go", "gcc": "gcc", "git": "git", "ip": "iproute2", "nft": "nftables", "mount": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			all = append(all, program+", of the package "+from)
		}
	}
	if found, _ := filepath.Glob("/usr/include/seccomp.h"); found == nil {
		all = append(all, "/usr/include/seccomp.h, of the package libseccomp-dev: runc is built with it")
	}
	if len(groups()) == 0 {
		all = append(all, "control groups below /sys/fs/cgroup")
	}
	for _, path := range []string{filepath.Dir(dir), "."} {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(path, &disk); err != nil || disk.Bavail*uint64(disk.Bsize) < gigabytes<<30 { // #nosec G115 -- of a disk
			all = append(all, fmt.Sprintf("%d GB of disk for %s", gigabytes, path))
		}
	}
	slices.Sort(all)
	return all
}

// Enter runs this program inside, with the arguments that it has, and returns its exit code when it has ended, or
// ctx has. Doors are what is reachable from outside. Before returning, it removes all that there was.
func Enter(ctx context.Context, log func(string), doors int) (code int, err error) {
	lock, err := net.Listen("unix", only)
	if err != nil {
		return 1, fmt.Errorf("another cluster runs on this machine: %w", err)
	}
	defer func() { _ = lock.Close() }()
	// Who was killed has left it.
	if err := cleanUp(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 1, err
	}
	log("packing images and the chart")
	if err := pack(ctx); err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...) // #nosec G204 G702 -- this very program
	cmd.Env = append(os.Environ(), insideEnv+"="+strconv.Itoa(doors), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	for range doors {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return 1, err
		}
		file, err := l.File()
		if err != nil {
			return 1, err
		}
		_ = l.Close()
		defer func() { _ = file.Close() }()
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS, // by which nothing that is mounted is seen outside
		Setpgid:      true,                // Ctrl-C is ours
		Pdeathsig:    syscall.SIGKILL,
	}
	runtime.LockOSThread() // whose end would be that of the other process
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if ctx.Err() != nil {
			return 0, nil
		}
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// groups are the control groups of the cluster: one, and with version 1 one for each controller.
func groups() (all []string) {
	mounted, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounted)) {
		if f := strings.Fields(line); strings.HasPrefix(f[2], "cgroup") {
			all = append(all, filepath.Join(f[1], group))
		}
	}
	return all
}

// cleanUp removes the control groups and the directory. Processes of a namespace that ends may be there for a moment.
func cleanUp() error {
	return poll.Try(context.Background(), time.Minute, time.Second/10, "all is removed", func() error {
		var failed error
		for _, root := range groups() {
			var nested []string
			_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					nested = append(nested, path)
				}
				return nil
			})
			for _, path := range slices.Backward(nested) {
				failed = errors.Join(failed, syscall.Rmdir(path))
			}
		}
		return errors.Join(failed, os.RemoveAll(dir))
	})
}
