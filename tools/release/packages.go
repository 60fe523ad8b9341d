package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sassoftware/go-rpmutils"
)

// packaged are the files of every package.
var packaged = []string{
	"usr/bin/changefeed", "usr/share/man/man1/changefeed.1.gz", "usr/share/man/man1/changefeed-run.1.gz",
	"usr/share/doc/changefeed/copyright", "usr/share/doc/changefeed/NOTICES.txt", "usr/share/doc/changefeed/README.md",
	"usr/share/bash-completion/completions/changefeed", "usr/share/zsh/vendor-completions/_changefeed",
	"usr/share/fish/vendor_completions.d/changefeed.fish",
}

// findPackage returns the only file of the release with an ending.
func (v *verification) findPackage(ending string) (string, error) {
	found, err := filepath.Glob(filepath.Join(v.dir, "*"+ending))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("there are %d files *%s: want one", len(found), ending)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// checkDeb unpacks a Debian package by dpkg-deb, and installs the one for this machine into an empty folder.
func (v *verification) checkDeb(arch string) {
	file, err := v.findPackage("_" + arch + ".deb")
	if err != nil {
		v.blame("deb", err)
		return
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		fmt.Printf("%s: skipped: this needs dpkg-deb\n", filepath.Base(file))
		return
	}
	root := filepath.Join(v.scratch, "deb-"+arch)
	fields, err := v.output("dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", file)
	if want := "changefeed " + strings.Replace(v.version, "-", "~", 1) + " " + arch; err == nil && fields != want {
		err = fmt.Errorf("it is %q: want %q", fields, want)
	}
	v.blame(file, err)
	if _, err := v.output("dpkg-deb", "-x", file, root); err != nil {
		v.blame(file, err)
		return
	}
	files, err := readTree(root)
	v.blame(file, errors.Join(err, missing(files, "", packaged)))
	v.blame(file, v.checkBinary("linux_"+arch, filepath.Join(root, "usr/bin/changefeed")))
	fmt.Printf("%s: %d files\n", filepath.Base(file), len(files))
	if isHere("linux_" + arch) {
		v.blame(file, v.installDeb(file))
	}
}

// installDeb installs a package into an empty folder, asks for its state, and removes it again. dpkg wants root for
// chroot, so the check is skipped without.
func (v *verification) installDeb(file string) error {
	if os.Geteuid() != 0 {
		fmt.Printf("%s: not installed: dpkg --root needs root\n", filepath.Base(file))
		return nil
	}
	root := filepath.Join(v.scratch, "installed")
	for _, folder := range []string{"info", "updates"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", folder), 0o755); err != nil {
			return err
		}
	}
	for _, database := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", database), nil, 0o644); err != nil {
			return err
		}
	}
	if _, err := v.output("dpkg", "--root="+root, "--force-not-root", "--install", file); err != nil {
		return err
	}
	state, err := v.output("dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "--show",
		"--showformat=${Status}", "changefeed")
	if err != nil || state != "install ok installed" {
		return fmt.Errorf("after dpkg --install the package is %q, %w", state, err)
	}
	if err := v.checkBinary("linux_"+hereArch(), filepath.Join(root, "usr/bin/changefeed")); err != nil {
		return err
	}
	if _, err := v.output("dpkg", "--root="+root, "--purge", "changefeed"); err != nil {
		return err
	}
	left, err := readTree(filepath.Join(root, "usr"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("after dpkg --purge %d files are left", len(left))
	}
	fmt.Printf("%s: installed, run and purged by dpkg\n", filepath.Base(file))
	return nil
}

// hereArch returns the architecture of this machine.
func hereArch() string {
	for _, platform := range allPlatforms {
		if isHere(platform) {
			_, arch, _ := strings.Cut(platform, "_")
			return arch
		}
	}
	return ""
}

// output runs a program and returns its standard output.
func (v *verification) output(name string, args ...string) (string, error) {
	var failed bytes.Buffer
	cmd := exec.CommandContext(v.ctx, name, args...)
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", name, err, out, failed.String())
	}
	return string(out), nil
}

// readTree reads all files below a folder.
func readTree(root string) (map[string]content, error) {
	files := map[string]content{}
	return files, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		files[filepath.ToSlash(name)] = content{info.Mode(), text}
		return err
	})
}

// rpmArchitectures are the names of architectures in RPM packages.
var rpmArchitectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// checkRPM reads an RPM package: its header, and its files with their digests.
func (v *verification) checkRPM(arch string) {
	file, err := v.findPackage("_" + arch + ".rpm")
	if err != nil {
		v.blame("rpm", err)
		return
	}
	files, err := v.readRPM(file, rpmArchitectures[arch])
	v.blame(file, errors.Join(err, missing(files, "", packaged)))
	if err != nil {
		return
	}
	binary := filepath.Join(v.scratch, "rpm-"+arch)
	v.blame(file, os.WriteFile(binary, files["usr/bin/changefeed"].text, 0o755))
	v.blame(file, v.checkBinary("linux_"+arch, binary))
	fmt.Printf("%s: %d files\n", filepath.Base(file), len(files))
}

// readRPM reads the files of an RPM package. The reader compares their digests with the header.
func (v *verification) readRPM(file, arch string) (map[string]content, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rpm, err := rpmutils.ReadRpm(f)
	if err != nil {
		return nil, err
	}
	nevra, err := rpm.Header.GetNEVRA()
	if err != nil {
		return nil, err
	}
	if version := strings.Replace(v.version, "-", "~", 1); nevra.Name != "changefeed" || nevra.Arch != arch ||
		nevra.Version != version {
		return nil, fmt.Errorf("it is %v: want changefeed %s for %s", nevra, version, arch)
	}
	payload, err := rpm.PayloadReaderExtended()
	if err != nil {
		return nil, err
	}
	files := map[string]content{}
	for {
		info, err := payload.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(payload)
		if err != nil {
			return nil, err
		}
		if info.Size() > 0 && len(text) > 0 {
			files[strings.TrimPrefix(info.Name(), "/")] = content{os.FileMode(info.Mode()).Perm(), text}
		}
	}
}
