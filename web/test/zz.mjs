import { startBrowser, openFile, closeBrowser } from './browser.mjs';
await startBrowser();
const { page, faults } = await openFile('/tmp/html/t/new.html', '#traffic');
await page.waitForTimeout(3000);
console.log(faults, await page.getByRole('alert').allTextContents(), (await page.getByRole('main').textContent()).slice(0, 900));
await closeBrowser();
